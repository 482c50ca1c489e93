#!/bin/sh
# Show what a command prints while it is running, as server-sent events.
set -eu
state=${AGENTKERNEL_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/agentkernel}

# api PATH [CURL OPTIONS...]
api() {
    path=$1
    shift
    curl --silent --show-error --unix-socket "$state/api.sock" "http://localhost$path" "$@"
}

# In a sandbox of its own. The last event is `exit`, with how it ended.
api /v1/run --no-buffer --header 'Accept: text/event-stream' \
    --json '{"shell": "for i in 1 2 3; do echo step $i; sleep 0.1; done; exit 3"}'
