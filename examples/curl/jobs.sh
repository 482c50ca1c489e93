#!/bin/sh
# Start something that goes on by itself, ask how it is, and end it.
set -eu
state=${AGENTKERNEL_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/agentkernel}

# api PATH [CURL OPTIONS...]
api() {
    path=$1
    shift
    curl --silent --show-error --unix-socket "$state/api.sock" "http://localhost$path" "$@"
}

api /v1/sandboxes --json '{"name": "curl-jobs", "ephemeral": true, "ttl_seconds": 600}' >/dev/null
trap 'api /v1/sandboxes/curl-jobs --request DELETE' EXIT

# What it writes can be followed, as in stream_output.sh; here it is a file.
job=$(api /v1/sandboxes/curl-jobs/jobs --json '{"shell": "echo working >/tmp/log; exec sleep 1000"}' |
    sed 's/.*"id":"\([a-z0-9]*\)".*/\1/')
until api '/v1/sandboxes/curl-jobs/files?path=/tmp/log' --fail 2>/dev/null; do sleep 0.1; done

api "/v1/jobs/$job/signal" --json '{"kill": true}'
until api "/v1/jobs/$job" | grep '"state":"ended"'; do sleep 0.1; done
echo

# What happened to the sandbox so far, as server-sent events; without follow=0 they go on.
api '/v1/events?after=0&sandbox=curl-jobs&follow=0'
