"""The clients of the daemon. `_async` is written by hand, `_sync` generated from it.

Users import `Sandbox` and `AsyncSandbox` from `agentkernel`. Nothing here needs more than the
standard library, and `_sync` not even asyncio: the command line starts on it.
"""
