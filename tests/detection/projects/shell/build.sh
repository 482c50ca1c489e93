#!/usr/bin/env bash
set -euo pipefail
words() { printf 'hello from %s\n' "$1"; }
words shell
