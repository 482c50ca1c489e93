"""The audit log: who did what to which sandbox, in lines that are chained by their hashes.

`entries` is the format, `files` where lines are, `log` the writer, `recovery` what it finds at its
start, `trail` how actions become lines, `redact` what never gets into one, `verify` the proof,
`reading` the way to look at it. docs/reference/audit.md says what the chain proves and what not.
"""
