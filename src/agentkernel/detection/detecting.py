"""From a command and a project to a runtime, a version, an image, and why.

The command says the runtime if it can; files say the version, and the runtime where the command
does not. Nearer files win over those above; files about versions over files about projects, those
over Dockerfile and devcontainer.json, and all of them over mere sources.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentkernel.detection.commands import Command, understood
from agentkernel.detection.containers import CONTAINER_FILES, read_container
from agentkernel.detection.files import LocalFiles, ProjectFiles
from agentkernel.detection.quick import directories_of
from agentkernel.detection.readers import PROJECT_READERS, SUFFIX_READERS, VERSION_FILES, Asked
from agentkernel.detection.tables import (
    NEUTRAL,
    PROJECT_FILES,
    PROJECT_SUFFIXES,
    RUNTIMES,
    SOURCE_SUFFIXES,
    Runtime,
)
from agentkernel.detection.versions import Wish

THE_COMMAND = "the command"
_MOST_OF_A_SUFFIX = 4


@dataclass(frozen=True, slots=True)
class Detection:
    """What a command in a project wants.

    `needs`: programs that a machine must have to do without an image, any one of each group.
    `bundled`: the image has the command's own program. `source`: the file, or `the command`, that
    asks for `wish`. `evidence`: the file that says the runtime, if one does. `certain`: the command
    itself says it, and is nothing without it. `image` None: there is no official one.
    """

    runtime: str
    program: str
    needs: tuple[tuple[str, ...], ...]
    image: str | None
    why: str
    wish: Wish | None = None
    source: str | None = None
    evidence: str | None = None
    bundled: bool = True
    certain: bool = True

    @property
    def label(self) -> str:
        return RUNTIMES[self.runtime].label

    @property
    def versions(self) -> str:
        return RUNTIMES[self.runtime].versions

    def to_dict(self) -> dict[str, Any]:
        return {
            "runtime": self.runtime,
            "language": RUNTIMES[self.runtime].language,
            "version": None if self.wish is None else self.wish.text,
            "version_from": self.source,
            "evidence": self.evidence,
            "image": self.image,
            "tools": [group[0] for group in self.needs],
            "why": self.why,
        }


def detect(
    command: Sequence[str] = (),
    directory: str | os.PathLike[str] = ".",
    *,
    top: str | None = None,
    files: ProjectFiles | None = None,
) -> Detection | None:
    """What `command` in `directory` wants, or the project there if there is no command; None:
    nothing tells. Directories above count up to `top`. `files`: a project that is elsewhere.

    Reads small files and runs nothing. Files that can't be understood are as good as absent.
    """
    if files is None:
        here = os.path.realpath(directory)
        places: list[ProjectFiles] = [
            LocalFiles(place) for place in directories_of(here, top or here)
        ]
    else:
        places = [files]
    found = understood(command, places[0]) if command else None
    if found is not None and found.runtime and not found.neutral:
        return _with_version(found, found.runtime, places)
    for place in places:
        for name, asked in _evidence(place):
            if asked.runtime in RUNTIMES:
                return _of_project(found, name, asked, places)
    if found is None or found.runtime is None:
        return None
    return _made(found, found.runtime, None, None, None, None)


def _with_version(command: Command, runtime: str, places: Sequence[ProjectFiles]) -> Detection:
    """The command says what; the nearest file about the same runtime says which."""
    if command.wish is not None:
        return _made(command, runtime, command.wish, THE_COMMAND, None, None)
    family = RUNTIMES[runtime].versions
    evidence: str | None = None
    for place in places:
        for name, asked in _evidence(place):
            if RUNTIMES[asked.runtime].versions != family:
                continue
            evidence = evidence or name
            if asked.runtime == "kotlin" and runtime == "java":
                runtime = "kotlin"
            if asked.wish is not None or asked.image is not None:
                return _made(command, runtime, asked.wish, name, evidence, asked.image)
    return _made(command, runtime, None, None, evidence, None)


def _of_project(
    command: Command | None, name: str, asked: Asked, places: Sequence[ProjectFiles]
) -> Detection:
    """A file says what; the first one about the same runtime that has a version says which."""
    if asked.wish is None and asked.image is None:
        family = RUNTIMES[asked.runtime].versions
        for place in places:
            for other, more in _evidence(place):
                if RUNTIMES[more.runtime].versions == family and (more.wish or more.image):
                    return _made(command, asked.runtime, more.wish, other, name, more.image)
    return _made(command, asked.runtime, asked.wish, name, name, asked.image)


def _made(
    command: Command | None,
    runtime: str,
    wish: Wish | None,
    source: str | None,
    evidence: str | None,
    image: str | None,
) -> Detection:
    kind = RUNTIMES[runtime]
    program = command.program if command is not None and not command.script else ""
    needs: list[tuple[str, ...]] = []
    if program:
        needs.append((program,))
    if program not in kind.programs and kind.versions != "shell" and source != THE_COMMAND:
        needs.append(kind.programs)
    # Whether an image has a program that nobody knows, only who names the image can know.
    bundled = command is None or (command.bundled if command.runtime else image is not None)
    # A command that says its runtime has an image of its own; a shell has the project's.
    own = command.image if command is not None and not command.neutral else None
    if image is None or own is not None:
        pattern = own if own is not None else kind.image
        image = pattern.format(series_for(kind, wish)) if pattern else None
    if image is not None and program == "make":
        image = image.removesuffix("-slim")  # which has no make
    return Detection(
        runtime=runtime,
        program=program,
        needs=tuple(needs),
        image=image,
        why=_why(command, kind, wish, source, evidence),
        wish=wish,
        source=source if wish is not None else None,
        evidence=evidence,
        bundled=bundled,
        certain=command is None or not (command.neutral or command.runtime is None),
    )


def series_for(kind: Runtime, wish: Wish | None) -> str:
    """The tag's number: our default if that will do, else the newest that will."""
    if wish is None:
        return kind.default
    if wish.exact is not None:
        return ".".join(map(str, wish.exact))
    for series in (kind.default, *kind.series):
        if all(part.isdigit() for part in series.split(".")) and wish.allows_series(
            [int(part) for part in series.split(".")]
        ):
            return series
    return ".".join(map(str, wish.least[: kind.precision]))


def _why(
    command: Command | None,
    kind: Runtime,
    wish: Wish | None,
    source: str | None,
    evidence: str | None,
) -> str:
    by_command = command is not None and command.runtime is not None and not command.neutral
    if by_command or (command is not None and evidence is None):
        first = command.why if command is not None else ""
    else:
        first = f"{evidence} makes it a project in {kind.label}"
    if wish is None:
        return first
    if source == THE_COMMAND:
        return f"{first} {wish.text}"
    verb = "and asks" if not by_command and source == evidence else f"and {source} asks"
    return f"{first}, {verb} for {wish.text}" if by_command else f"{first} {verb} for {wish.text}"


def _evidence(files: ProjectFiles) -> Iterator[tuple[str, Asked]]:
    """Everything in one directory that tells something, the strongest first."""
    names = files.names()
    for name, read in VERSION_FILES.items():
        if name in names or "/" in name:
            text = files.read(name)
            for asked in read(text) if text is not None else ():
                yield name, asked
    for name, runtime in PROJECT_FILES.items():
        if name in names:
            yield from _of_file(name, runtime, files)
    for name in PROJECT_READERS:
        if name in names and name not in PROJECT_FILES:
            yield from _of_file(name, "", files)
    yield from _of_suffixes(PROJECT_SUFFIXES, names, files)
    for name in CONTAINER_FILES:
        if name in names or "/" in name:
            for asked in read_container(name, files):
                yield name, asked
    if any(name.lower() in ("makefile", "gnumakefile") for name in names) and _has(
        names, ".c", ".cpp"
    ):
        yield "Makefile", Asked(NEUTRAL["make"])
    for suffix, runtime in SOURCE_SUFFIXES.items():
        if found := _with_suffix(names, suffix):
            yield found[0], Asked(runtime)


def _of_file(name: str, runtime: str, files: ProjectFiles) -> Iterator[tuple[str, Asked]]:
    """The reader's words first: what it finds is more exact than the name."""
    text = files.read(name) if name in PROJECT_READERS else None
    found = PROJECT_READERS[name](text) if text is not None else []
    for asked in found:
        yield name, asked
    if runtime and not any(asked.runtime == runtime for asked in found):
        kinds = {asked.runtime for asked in found}
        # A project of Bun's or Kotlin's has the files of Node's or Java's, too.
        if not kinds:
            yield name, Asked(runtime)


def _of_suffixes(
    suffixes: dict[str, str], names: frozenset[str], files: ProjectFiles
) -> Iterator[tuple[str, Asked]]:
    for suffix, runtime in suffixes.items():
        for name in _with_suffix(names, suffix):
            text = files.read(name) if suffix in SUFFIX_READERS else None
            found = SUFFIX_READERS[suffix](text) if text is not None else []
            for asked in found or [Asked(runtime)]:
                yield name, asked


def _with_suffix(names: frozenset[str], suffix: str) -> list[str]:
    found = sorted(name for name in names if name.endswith(suffix) and name != suffix)
    return found[:_MOST_OF_A_SUFFIX]


def _has(names: frozenset[str], *suffixes: str) -> bool:
    return any(name.endswith(suffixes) for name in names)
