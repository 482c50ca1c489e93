"""From a command to the program that counts: past `env`, `timeout` and `sh -c`, into scripts."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentkernel.detection.files import ProjectFiles
from agentkernel.detection.tables import (
    EXTENSIONS,
    NEUTRAL,
    PROGRAMS,
    RUNNERS,
    RUNTIMES,
    WRAPPER_VALUES,
    WRAPPERS,
)
from agentkernel.detection.versions import Wish, parse_wish

_DEEPEST = 8
_MAX_WORDS = 64
_MAX_SHELL = 4096
_HEAD = 256
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w{0,99}=")
_VERSIONED = re.compile(r"([a-z][a-z+]{0,20})-?(\d{1,3}(?:\.\d{1,3}){0,2})\Z")
# They change what comes after them, and are not what is run.
_BEFORE = ("cd", "set", "export", "source", ".", "umask", "ulimit", "true", ":", "mkdir", "pushd")
_ENDS = ("&&", ";", "||", "|", "&")


@dataclass(frozen=True, slots=True)
class Command:
    """`runtime` None: the program is none that we know. `neutral`: the project says what it is,
    `runtime` if there is none. `bundled` and `image` as in `tables.Program`. `why` is a clause."""

    program: str
    runtime: str | None
    why: str
    neutral: bool = False
    bundled: bool = True
    image: str | None = None
    wish: Wish | None = None
    script: bool = False


def understood(words: Sequence[str], files: ProjectFiles, depth: int = 0) -> Command:
    """What a command runs. Never fails: what is odd is a program that nobody knows."""
    words = list(words[:_MAX_WORDS])
    while words and depth < _DEEPEST:
        name = _base(words[0])
        depth += 1
        if name in WRAPPERS:
            words = _after_wrapper(name, words)
            continue
        if name in NEUTRAL and (text := _shell_text(name, words)) is not None:
            inner = _first_command(text)
            if not inner:
                break
            found = understood(inner, files, depth)
            # What a shell only starts with is no reason to look for anything but a shell.
            return found if found.runtime else _neutral(name)
        break
    if not words:
        return Command("", None, "there is no command")
    return _program(words, files)


def _program(words: Sequence[str], files: ProjectFiles) -> Command:
    word = words[0]
    name = _base(word)
    if "/" in word and not word.startswith(("/usr/", "/bin/", "/sbin/")):
        return _script(word, name, files)
    if name in RUNNERS and (inner := _run_by(words)) is not None:
        return inner
    if name == "node" and any(w.endswith((".ts", ".mts")) for w in words[1:3]):
        return Command(name, "tsx", f"{name} runs TypeScript")
    if name == "node" and "tsx" in words[1:4]:
        return Command(name, "tsx", "node runs it through tsx")
    if name in PROGRAMS:
        known = PROGRAMS[name]
        return Command(
            name, known.runtime, _runs(name, known.runtime), False, known.bundled, known.image
        )
    if name in NEUTRAL:
        return _neutral(name)
    versioned = _VERSIONED.match(name)
    if versioned and versioned[1] in PROGRAMS:
        known = PROGRAMS[versioned[1]]
        family = RUNTIMES[RUNTIMES[known.runtime].versions]
        parts = versioned[2].split(".")
        wish = (
            parse_wish(versioned[2], family.precision) if len(parts) >= family.precision else None
        )
        return Command(
            name, known.runtime, _runs(name, known.runtime), False, known.bundled, known.image, wish
        )
    return Command(name, None, f"{name} is no program that tells a runtime")


def _runs(name: str, runtime: str) -> str:
    return f"{name} runs {RUNTIMES[runtime].label}"


def _neutral(name: str) -> Command:
    return Command(name, NEUTRAL[name], f"{name} runs whatever the project is", neutral=True)


def _script(word: str, name: str, files: ProjectFiles) -> Command:
    """A file that is run by itself: what its first line says, else its name."""
    if name in PROGRAMS and name in ("gradlew", "mvnw"):
        return Command(
            name, "java", _runs(name, "java"), False, True, PROGRAMS[name].image, None, True
        )
    relative = os.path.normpath(word)
    head = b"" if word.startswith("/") else files.head(relative, _HEAD)
    runtime = _shebang(head, files)
    if runtime is not None:
        return Command(name, runtime, f"{name} says so in its first line", script=True)
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    if extension in EXTENSIONS:
        runtime = EXTENSIONS[extension]
        return Command(
            name, runtime, f"{name} is {RUNTIMES[runtime].label} by its name", script=True
        )
    if word.startswith("/") and (known := PROGRAMS.get(name)):
        return Command(name, known.runtime, _runs(name, known.runtime), False, known.bundled)
    return Command(name, None, f"{name} is a file of the project's", script=True)


def _shebang(head: bytes, files: ProjectFiles) -> str | None:
    if not head.startswith(b"#!"):
        return None
    words = head[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split()
    if words and _base(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    if not words or "/" in words[0] and not words[0].startswith(("/usr/", "/bin/")):
        return None
    found = _program([_base(words[0]), *words[1:]], files)
    return found.runtime


def _run_by(words: Sequence[str]) -> Command | None:
    """`npx tsx …`, `bunx …`: Node's or Bun's, in TypeScript if that is what is run."""
    rest = [word for word in words[1:6] if not word.startswith("-")]
    inner = rest[0].partition("@")[0] if rest else ""
    if inner in ("tsx", "ts-node") and _base(words[0]) != "bunx":
        return Command(_base(words[0]), "tsx", f"{_base(words[0])} runs {inner}")
    return None


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _after_wrapper(name: str, words: list[str]) -> list[str]:
    values = WRAPPER_VALUES.get(name, ())
    own = WRAPPERS[name]
    at = 1
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if word in values:
            at += 2
        elif word.startswith("-") or _ASSIGNMENT.match(word):
            at += 1
        elif own:
            own -= 1
            at += 1
        else:
            break
    return words[at:]


def _shell_text(name: str, words: list[str]) -> str | None:
    """What stands after `-c`, also in `-euc`."""
    if name == "make":
        return None
    for at, word in enumerate(words[1:6], 1):
        if not word.startswith("-"):
            return None
        if not word.startswith("--") and word.endswith("c") and at + 1 < len(words):
            return words[at + 1][:_MAX_SHELL]
    return None


def _first_command(text: str) -> list[str]:
    """The first that does something. Only plain words are understood: the rest is the shell's."""
    import shlex

    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] = []
    try:
        for token in lexer:
            if token in _ENDS or set(token) <= set("();<>|&"):
                if found and found[0] not in _BEFORE:
                    break
                found = []
            elif found or not _ASSIGNMENT.match(token):
                found.append(token)
                if len(found) == _MAX_WORDS:
                    break
    except ValueError:
        return []
    return found if found and found[0] not in _BEFORE else []
