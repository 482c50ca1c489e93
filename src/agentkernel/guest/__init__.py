"""The host's side of the channel to agentd: frames, the channel, processes.

Written from `docs/reference/guest-protocol.md`. Everything that arrives here comes from inside a
sandbox and is treated as hostile.
"""
