#!/bin/sh
# What goes wrong is a status and a problem: code, detail, and a hint where there is one.
set -eu
state=${AGENTKERNEL_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/agentkernel}

# api PATH [CURL OPTIONS...]
api() {
    path=$1
    shift
    curl --silent --show-error --unix-socket "$state/api.sock" "http://localhost$path" "$@"
}

# There is no such sandbox.
api /v1/sandboxes/nobody --write-out '\nstatus %{http_code}\n'

# A field that is wrong or unknown has its place in `details`.
api /v1/run --json '{"shell": "true", "cpus": "many"}' --write-out '\nstatus %{http_code}\n'

# Repeating a create is safe with a key: the second one is the same sandbox (200 instead of 201).
for attempt in 1 2; do
    api /v1/sandboxes --header 'Idempotency-Key: example-1' --json '{"name": "curl-once"}' \
        --output /dev/null --write-out "attempt $attempt: status %{http_code}\n"
done
api /v1/sandboxes/curl-once --request DELETE --write-out 'removed: status %{http_code}\n'
