"""A Dockerfile as steps. What would not be carried out as written is refused, by name and line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from agentkernel.errors import InvalidInputError, UnsupportedError
from agentkernel.images.dockerfile.lines import Instruction, bad, read
from agentkernel.images.dockerfile.model import (
    MAX_STAGES,
    Arg,
    Build,
    Cmd,
    Command,
    Copy,
    Entrypoint,
    Env,
    Expose,
    Healthcheck,
    Label,
    Maintainer,
    Run,
    Shell,
    Stage,
    Step,
    StopSignal,
    User,
    Volume,
    Workdir,
)
from agentkernel.images.dockerfile.words import split_words

_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(.*))?\Z", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ALIAS = re.compile(r"[a-z][a-z0-9_.-]*\Z")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9
}  # fmt: skip
_MAX_NANOSECONDS = 1 << 62


def parse(content: bytes) -> Build:
    """Raises InvalidInputError for what is no Dockerfile, UnsupportedError for what we don't do."""
    text = read(content)
    parser = _Parser(text.escape)
    for instruction in text.instructions:
        parser.add(instruction)
    return Build(parser.stages(), tuple(parser.arguments), text.notes, text.escape)


class _Parser:
    def __init__(self, escape: str) -> None:
        self._escape = escape
        self.arguments: list[Arg] = []
        self._stages: list[tuple[Instruction, str, str, str, list[Step]]] = []

    def stages(self) -> tuple[Stage, ...]:
        if not self._stages:
            raise InvalidInputError("the Dockerfile has no FROM", hint="begin it with FROM IMAGE")
        return tuple(
            Stage(base, tuple(steps), alias, platform, at.line, f"FROM {at.text}")
            for at, base, alias, platform, steps in self._stages
        )

    def add(self, at: Instruction) -> None:
        if at.word == "FROM":
            self._from(at)
            return
        make = _MAKERS.get(at.word)
        if make is None:
            self._refuse(at)
        if not at.text:
            raise bad(at.line, f"{at.word} says nothing")
        step = make(at, self._escape)
        if self._stages:
            self._stages[-1][4].append(step)
        elif isinstance(step, Arg):
            self.arguments.append(step)
        else:
            raise bad(at.line, f"{at.word} stands before the first FROM; only ARG may")

    def _refuse(self, at: Instruction) -> NoReturn:
        if at.word == "ONBUILD":
            raise _unsupported(
                at, "ONBUILD", "write what it would do into the Dockerfiles that build on this one"
            )
        raise bad(
            at.line,
            f"{at.word[:40]} is no instruction that is supported here",
            hint=f"there are FROM, {', '.join(sorted(_MAKERS))}",
        )

    def _from(self, at: Instruction) -> None:
        flags, rest = _flags(at, self._escape, ("platform",))
        words = rest.split()
        alias = ""
        if len(words) == 3 and words[1].lower() == "as":
            alias = words[2].lower()
            if not _ALIAS.match(alias):
                raise bad(at.line, f"{words[2][:100]!r} can't be the name of a stage")
        elif len(words) != 1:
            raise bad(at.line, "FROM is followed by IMAGE or IMAGE AS NAME")
        if len(self._stages) >= MAX_STAGES:
            raise bad(at.line, f"more than {MAX_STAGES} stages")
        if alias and any(alias == stage[2] for stage in self._stages):
            raise bad(at.line, f"there is a stage {alias} before")
        self._stages.append((at, words[0], alias, flags.get("platform", ""), []))


def _run(at: Instruction, escape: str) -> Step:
    flags, rest = _flags(at, escape, ("mount", "network", "security"), repeated=("mount",))
    for name in ("mount", "security"):
        if name in flags:
            raise _unsupported(at, f"RUN --{name}", _RUN_FLAGS[name])
    network = flags.get("network", "")
    if network not in ("", "default", "none"):
        raise _unsupported(at, f"RUN --network={network[:40]}", "use none, or leave it out")
    command, script = _command(at, rest), ""
    if len(at.heredocs) == 1 and re.fullmatch(r"<<-?\S+", rest):
        text = at.heredocs[0].text
        if text.startswith("#!"):
            command, script = Command((), is_shell=False), text
        else:
            command = Command((text,))
    elif at.body:
        command = Command((rest + at.body,))
    return Run(
        command,
        script,
        "none" if network == "none" else "",
        line=at.line,
        source=f"RUN {at.text}",
    )


_RUN_FLAGS = {
    "mount": "do without: packages' own caches can be removed in the same RUN, files come by COPY",
    "security": "leave it out: every RUN is confined",
}


def _copy(at: Instruction, escape: str) -> Step:
    adds = at.word == "ADD"
    known = ("from", "chown", "chmod", "link", "parents", "exclude", "checksum", "keep-git-dir")
    flags, rest = _flags(at, escape, known, repeated=("exclude",))
    for name in ("parents", "exclude", "checksum", "keep-git-dir"):
        if name in flags:
            raise _unsupported(at, f"{at.word} --{name}", "leave it out")
    if adds and "from" in flags:
        raise bad(at.line, "ADD has no --from", hint="use COPY --from")
    words = _json_words(at, rest) or split_words(rest, escape)
    names = {heredoc.name for heredoc in at.heredocs}
    if at.heredocs:
        words = [word for word in words if not re.match(r"\d*<<-?[^<\s]+\Z", word)]
        if len(names) != len(at.heredocs):
            raise bad(at.line, "two texts have the same name")
    if len(words) + len(at.heredocs) < 2:
        raise bad(at.line, f"{at.word} needs what and where to")
    *sources, target = words
    for source in sources:
        if adds and re.match(r"(?:https?|git|ssh|ftp)://|git@", source):
            raise _unsupported(
                at, f"ADD of an address ({source[:100]})", "fetch it in a RUN, or put it beside"
            )
    return Copy(
        tuple(sources),
        target,
        origin=flags.get("from", ""),
        owner=flags.get("chown", ""),
        mode=flags.get("chmod", ""),
        heredocs=at.heredocs,
        extracts=adds,
        line=at.line,
        source=f"{at.word} {at.text}",
    )


def _env(at: Instruction, escape: str) -> Step:
    return Env(_pairs(at, escape), line=at.line, source=f"ENV {at.text}")


def _label(at: Instruction, escape: str) -> Step:
    return Label(_pairs(at, escape), line=at.line, source=f"LABEL {at.text}")


def _pairs(at: Instruction, escape: str) -> tuple[tuple[str, str], ...]:
    """`NAME=VALUE …`, or as long ago `NAME VALUE with blanks`."""
    words = split_words(at.text, escape)
    if "=" not in words[0]:
        name, _, value = at.text.partition(" ")
        if not value.strip():
            raise bad(at.line, f"{at.word} needs NAME=VALUE")
        return ((name, value.strip()),)
    pairs = []
    for word in words:
        name, mark, value = word.partition("=")
        if not mark:
            raise bad(at.line, f"{word[:100]!r} has no =", hint="a value with blanks needs quotes")
        if not name:
            raise bad(at.line, f"{word[:100]!r} has no name before its =")
        pairs.append((name, value))
    return tuple(pairs)


def _arg(at: Instruction, escape: str) -> Step:
    names: list[tuple[str, str | None]] = []
    for word in split_words(at.text, escape):
        name, mark, value = word.partition("=")
        if not _VARIABLE.match(name):
            raise bad(at.line, f"{name[:100]!r} can't be the name of an argument")
        names.append((name, value if mark else None))
    return Arg(tuple(names), line=at.line, source=f"ARG {at.text}")


def _workdir(at: Instruction, escape: str) -> Step:
    return Workdir(at.text, line=at.line, source=f"WORKDIR {at.text}")


def _user(at: Instruction, escape: str) -> Step:
    if len(at.text.split()) != 1:
        raise bad(at.line, "USER is followed by one word, USER[:GROUP]")
    return User(at.text, line=at.line, source=f"USER {at.text}")


def _entrypoint(at: Instruction, escape: str) -> Step:
    return Entrypoint(_command(at, at.text), line=at.line, source=f"ENTRYPOINT {at.text}")


def _cmd(at: Instruction, escape: str) -> Step:
    return Cmd(_command(at, at.text), line=at.line, source=f"CMD {at.text}")


def _expose(at: Instruction, escape: str) -> Step:
    return Expose(tuple(split_words(at.text, escape)), line=at.line, source=f"EXPOSE {at.text}")


def _shell(at: Instruction, escape: str) -> Step:
    words = _json_words(at, at.text)
    if not words:
        raise bad(at.line, 'SHELL is written as ["PROGRAM", "WORD"…]')
    return Shell(tuple(words), line=at.line, source=f"SHELL {at.text}")


def _volume(at: Instruction, escape: str) -> Step:
    words = _json_words(at, at.text)
    paths = split_words(at.text, escape) if words is None else words
    if not all(paths) or not paths:
        raise bad(at.line, "VOLUME names no path")
    return Volume(tuple(paths), line=at.line, source=f"VOLUME {at.text}")


def _stop_signal(at: Instruction, escape: str) -> Step:
    if len(at.text.split()) != 1:
        raise bad(at.line, "STOPSIGNAL is followed by one word")
    return StopSignal(at.text, line=at.line, source=f"STOPSIGNAL {at.text}")


def _maintainer(at: Instruction, escape: str) -> Step:
    return Maintainer(at.text, line=at.line, source=f"MAINTAINER {at.text}")


def _healthcheck(at: Instruction, escape: str) -> Step:
    known = ("interval", "timeout", "start-period", "start-interval", "retries")
    flags, rest = _flags(at, escape, known)
    where = f"HEALTHCHECK {at.text}"
    kind, _, text = rest.partition(" ")
    if kind.upper() == "NONE" and not text.strip() and not flags:
        return Healthcheck(line=at.line, source=where)
    if kind.upper() != "CMD" or not text.strip():
        raise bad(at.line, "HEALTHCHECK is followed by NONE or by CMD and a command")
    times = {
        name.replace("-", "_"): _duration(at, value)
        for name, value in flags.items()
        if name != "retries"
    }
    retries = flags.get("retries", "0")
    if not re.fullmatch(r"[0-9]{1,9}", retries):
        raise bad(at.line, "--retries is a number")
    return Healthcheck(
        _command(at, text.strip()), retries=int(retries), line=at.line, source=where, **times
    )


_MAKERS: Mapping[str, Callable[[Instruction, str], Step]] = {
    "RUN": _run,
    "COPY": _copy,
    "ADD": _copy,
    "ENV": _env,
    "ARG": _arg,
    "LABEL": _label,
    "WORKDIR": _workdir,
    "USER": _user,
    "ENTRYPOINT": _entrypoint,
    "CMD": _cmd,
    "EXPOSE": _expose,
    "SHELL": _shell,
    "VOLUME": _volume,
    "STOPSIGNAL": _stop_signal,
    "MAINTAINER": _maintainer,
    "HEALTHCHECK": _healthcheck,
}


def _flags(
    at: Instruction, escape: str, known: tuple[str, ...], repeated: tuple[str, ...] = ()
) -> tuple[dict[str, str], str]:
    """Words that begin with `--`, as far as nothing else came, and the rest of the text."""
    flags: dict[str, str] = {}
    rest = at.text
    while rest.startswith("--"):
        word = split_words(rest, escape)[0]
        if word == "--":
            return flags, rest[2:].strip()
        match = _FLAG.match(word)
        if match is None or match.group(1) not in known:
            raise _unsupported(
                at, f"{at.word} {word[:60]}", f"{at.word} has --{', --'.join(known)}"
            )
        name = match.group(1)
        if name in flags and name not in repeated:
            raise bad(at.line, f"--{name} stands there twice")
        flags[name] = "true" if match.group(2) is None else match.group(2)
        rest = rest[len(word) :].strip()
    return flags, rest


def _command(at: Instruction, text: str) -> Command:
    words = _json_words(at, text)
    if words is None:
        return Command((text,))
    if not words and at.word == "RUN":
        raise bad(at.line, "RUN [] runs nothing")
    return Command(tuple(words), is_shell=False)


def _json_words(at: Instruction, text: str) -> list[str] | None:
    """A JSON list of strings. Anything else is a text, as everywhere: `RUN [ -e x ]` is one."""
    if not text.startswith("["):
        return None
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    if any("\0" in word for word in words):
        raise bad(at.line, "a word has a NUL")
    return words


def _duration(at: Instruction, text: str) -> int:
    total, position = 0.0, 0
    for match in _DURATION.finditer(text):
        if match.start() != position:
            break
        position = match.end()
        total += float(match.group(1)) * _UNITS[match.group(2)]
    if position != len(text) or not text or total > _MAX_NANOSECONDS:
        raise bad(at.line, f"{text[:40]!r} is no time", hint="write 30s, 1m30s or 500ms")
    return int(total)


def _unsupported(at: Instruction, what: str, hint: str) -> UnsupportedError:
    return UnsupportedError(f"line {at.line}: {what} is not supported", hint=hint, line=at.line)
