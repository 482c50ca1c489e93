"""`agentkernel completion SHELL`: scripts that ask agentkernel itself what may come next.

One completer for all shells, on the parser that the command line is: a script hands over the words
typed so far and gets candidates, a line each, with a tab and a description where there is one.
Names of sandboxes, images, volumes and agents come from the daemon if one runs; none is started,
and no error is ever shown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from agentkernel.cli.values import printable

# Arguments whose values are names of sandboxes that exist (one that may be left out is for a new
# one); `FILE` and the like are left to the shell.
_SANDBOXES = ("NAME",)
_IMAGES = ("IMAGE",)
_VOLUMES = "VOLUME"
_AGENTS = "AGENT"
_FILES = ("FILE", "SOURCE", "TARGET")
# What a script takes for "complete files yourself": no candidate can look like it.
FILES = "\tfiles"
_DAEMON_SECONDS = 2.0

_BASH = r"""# bash completion for agentkernel and ak
_agentkernel() {
    local program=${1/#\~/$HOME} line word=${COMP_WORDS[COMP_CWORD]}
    local -a words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == $'\tfiles' ]]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$word")
        else
            COMPREPLY+=("${line%%$'\t'*}")
        fi
    done < <("$program" completion bash --words "${words[@]}" 2>/dev/null)
}
complete -F _agentkernel agentkernel ak
"""

_ZSH = r"""#compdef agentkernel ak
_agentkernel() {
    local line program=${(Q)words[1]}
    local -a found typed=("${(@Q)words[2,CURRENT]}")
    for line in ${(f)"$($program completion zsh --words "${typed[@]}" 2>/dev/null)"}; do
        if [[ $line == $'\tfiles' ]]; then
            _files
        else
            found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( $#found )) && _describe agentkernel found
}
compdef _agentkernel agentkernel ak
"""

_FISH = r"""# fish completion for agentkernel and ak
function __agentkernel_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] completion fish --words $words[2..] 2>/dev/null)
        if test "$line" = \tfiles
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c agentkernel -f -a '(__agentkernel_complete)'
complete -c ak -f -a '(__agentkernel_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def main(options: argparse.Namespace) -> int:
    if options.words is None:
        print(_SCRIPTS[options.shell], end="")
        return 0
    from agentkernel.cli.main import build_parser

    for name, about in candidates(build_parser(), options.words or [""]):
        print(f"{name}\t{about}" if about else name)
    return 0


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the last of `words` may become, given those before it."""
    *before, word = words
    positionals = _positionals(parser)
    waiting: argparse.Action | None = None  # an option whose value is the next word
    for typed in before:
        if waiting is not None:
            waiting = None
        elif typed == "--":
            return  # the command's own words
        elif typed.startswith("-"):
            option = parser._option_string_actions.get(typed)
            waiting = option if option is not None and option.nargs != 0 else None
        elif positionals:
            action = positionals[0]
            if isinstance(action, argparse._SubParsersAction):
                if typed not in action.choices:
                    return
                parser = action.choices[typed]
                positionals = _positionals(parser)
            elif action.nargs == argparse.REMAINDER:
                return
            elif action.nargs != "+":
                positionals.pop(0)
    if waiting is not None:
        yield from _values(waiting, word, set())
    elif word.startswith("-"):
        yield from _options(parser, word)
    elif positionals:
        yield from _values(positionals[0], word, set(before))


def _positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]


def _options(parser: argparse.ArgumentParser, word: str) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        for name in action.option_strings:
            if name.startswith(word) and (name.startswith("--") or len(word) == 1):
                yield name, action.help or ""


def _values(action: argparse.Action, word: str, typed: set[str]) -> Iterator[tuple[str, str]]:
    if isinstance(action, argparse._SubParsersAction):
        for choice in action._choices_actions:
            if choice.dest.startswith(word):
                yield choice.dest, choice.help or ""
    elif action.choices is not None:
        yield from ((str(c), "") for c in action.choices if str(c).startswith(word))
    elif action.metavar in _SANDBOXES and (action.option_strings or action.nargs != "?"):
        for name, state in _sandboxes():
            if name.startswith(word) and name not in typed:
                yield name, state
    elif action.metavar in _IMAGES:
        for name, size in _images():
            if name.startswith(word) and name not in typed:
                yield name, size
        if action.option_strings:
            yield FILES, ""  # a sandbox can be made from a directory, too
    elif action.metavar == _VOLUMES:
        for name, mode in _volumes():
            if name.startswith(word) and name not in typed:
                yield name, mode
    elif action.metavar == _AGENTS:
        for name, title in _agents():
            if name.startswith(word) and name not in typed:
                yield name, title
    elif action.metavar in _FILES:
        yield FILES, ""


def _volumes() -> Iterator[tuple[str, str]]:
    for entry in _asked("/v1/volumes").get("volumes", ()):
        yield printable(entry["name"]), "exclusive" if entry["exclusive"] else "shared"


def _agents() -> Iterator[tuple[str, str]]:
    """Those that come with this package, and what the daemon knows of others."""
    from agentkernel.cli.main import AGENTS

    found = {printable(a["name"]): a["title"] for a in _asked("/v1/agents").get("agents", ())}
    yield from ({name: "" for name in AGENTS} | found).items()


def _sandboxes() -> Iterator[tuple[str, str]]:
    """Names and states."""
    for entry in _asked("/v1/sandboxes", {"limit": 1000}).get("sandboxes", ()):
        yield printable(entry["name"] or entry["id"]), printable(entry["state"])


def _images() -> Iterator[tuple[str, str]]:
    """Names and sizes."""
    from agentkernel.cli.layer_bars import size_words

    for entry in _asked("/v1/images").get("images", ()):
        for name in entry["names"]:
            yield printable(name), size_words(entry["size"])


def _asked(path: str, query: dict[str, int] | None = None) -> dict[str, Any]:
    """The daemon's answer; nothing if there is no daemon, or it does not answer soon."""
    from agentkernel.client._sync.transport import Transport
    from agentkernel.errors import AgentKernelError

    transport = Transport(start=False)
    try:
        if not transport.daemon.answers():
            return {}
        found: dict[str, Any] = transport.call("GET", path, query=query, seconds=_DAEMON_SECONDS)
        return found
    except AgentKernelError:
        return {}
    finally:
        transport.close()
