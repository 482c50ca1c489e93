#!/bin/sh
# Run a command in a sandbox of its own: made, run, removed, in one call.
set -eu
state=${AGENTKERNEL_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/agentkernel}

# api PATH [CURL OPTIONS...]
api() {
    path=$1
    shift
    curl --silent --show-error --unix-socket "$state/api.sock" "http://localhost$path" "$@"
}

# A string is for a shell. What comes back has its output, its exit code and what it used.
api /v1/run --json '{"shell": "python3 -c \"print(2 + 2)\"", "timeout_seconds": 20}'
echo

# A list is run as it is; what it reads is in the body, too.
api /v1/run --json '{"argv": ["sort"], "stdin": "b\na\n"}'
echo

# A command that fails is a result: the status is 200 all the same.
api /v1/run --json '{"shell": "exit 3"}' --output /dev/null --write-out 'status %{http_code}\n'
