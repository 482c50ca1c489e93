# Sourced by ./agentkernel and ./test with $root set: finds or makes a Python environment.
#
# The usual start must cost nothing that can be felt, so a stamp that is newer than all it depends
# on is looked up with shell builtins alone, and no second Python is started.

# usable VENV GROUP: is this environment complete, for this clone, and usable by this user?
usable() {
    stamp=$1/stamp.$2
    [ -f "$stamp" ] && [ -x "$1/bin/python" ] || return 1
    { IFS= read -r stamped_root && IFS= read -r agentd; } <"$stamp" || return 1
    [ "$stamped_root" = "$root" ] && [ -x "$agentd" ] || return 1
    python=$1/bin/python
}

# fresh: is the environment that `usable` found newer than everything it was made from?
fresh() {
    for source in "$root/pyproject.toml" "$root"/tools/*.py "$root/agentd/src" "$root"/agentd/src/*
    do
        if [ "$source" -nt "$stamp" ]; then return 1; fi
    done
}

# The fallback for a clone that is read-only or somebody else's.
find_cache() {
    key=$(printf %s "$root" | cksum)
    key=clone-${key%% *}-${key##* }
    if [ -n "${XDG_CACHE_HOME:-}" ]; then
        cache=$XDG_CACHE_HOME/agentkernel/$key
    elif [ -n "${HOME:-}" ]; then
        cache=$HOME/.cache/agentkernel/$key
    else
        cache=${TMPDIR:-/tmp}/agentkernel-$(id -u)-$key
    fi
}

# The Python that made the environment before stays, whatever is on PATH by now.
find_python() {
    for candidate in "${AGENTKERNEL_PYTHON:-$root/.venv/bin/python}" "$cache/venv/bin/python" \
        python3 python3.14 python3.13 python3.12 python3.11
    do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            return 0
        fi
    done
    echo "agentkernel: needs Python 3.11 or newer, and finds none" >&2
    echo "hint: install one, or name it in AGENTKERNEL_PYTHON" >&2
    exit 125
}

# Others may prepare a directory in /tmp for us: trust only what is ours.
usable_cache() {
    [ -O "$cache" ] && usable "$cache/venv" "$1"
}

# prepare [GROUP]: sets $python, or ends with what is wrong.
prepare() {
    group=${1:-run}
    usable "$root/.venv" "$group" && fresh && return
    find_cache
    if ! usable_cache "$group" || ! fresh; then
        find_python
        # Its own directory on the module path, but nothing from the environment or the home.
        "$candidate" -E -s "$root/tools/bootstrap.py" --cache "$cache" ${1:+--group "$1"} \
            </dev/null || exit $?
        if [ -w "$root/.venv" ] && usable "$root/.venv" "$group"; then return; fi
        if ! usable_cache "$group"; then
            echo "agentkernel: the environment can't be used right after it was made" >&2
            echo "hint: may programs run from $root and $cache (noexec)?" >&2
            exit 125
        fi
    fi
    export AGENTKERNEL_AGENTD="${AGENTKERNEL_AGENTD:-$agentd}"
}
