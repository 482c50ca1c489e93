#!/bin/sh
# Put files into a sandbox and take them out again.
set -eu
state=${AGENTKERNEL_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/agentkernel}

# api PATH [CURL OPTIONS...]
api() {
    path=$1
    shift
    curl --silent --show-error --unix-socket "$state/api.sock" "http://localhost$path" "$@"
}

# `ephemeral`: its files are in memory, and it is removed when its time is over.
api /v1/sandboxes --json '{"name": "curl-files", "ephemeral": true, "ttl_seconds": 600}' >/dev/null
trap 'api /v1/sandboxes/curl-files --request DELETE' EXIT

# One file, with the directories above it. The body is the file.
printf 'hello\n' |
    api '/v1/sandboxes/curl-files/files?path=/work/hello.txt&parents=1' --upload-file -
echo
api '/v1/sandboxes/curl-files/files?path=/work/hello.txt'
api '/v1/sandboxes/curl-files/list?path=/work'
echo

# A directory, as tar: out, and into another place.
api '/v1/sandboxes/curl-files/tree?path=/work' |
    api '/v1/sandboxes/curl-files/tree?path=/copy' --upload-file -
echo
api /v1/sandboxes/curl-files/exec --json '{"argv": ["cat", "/copy/hello.txt"]}'
echo
