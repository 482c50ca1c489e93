"""The steps of a build, whoever wrote them: a Dockerfile, or a program that needs no text.

    Build(stages=(
        Stage(base="debian:12", steps=(
            Run(shell("apt-get update && apt-get install -y jq")),
            Copy(sources=("app/",), target="/srv/"),
            Env((("GREETING", literal("costs $5")),)),
        )),
    ))

Texts in fields said to be *expanded* may have `$NAME` and `${NAME:-word}`, with quotes and escapes
as in a Dockerfile: they are worked out when the step is reached, since an image below and the steps
before say what a name stands for. `literal` makes a text that stands for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

SCRATCH = "scratch"
# What nobody sane exceeds; more is refused before it costs anything.
MAX_FILE_BYTES = 4 << 20
MAX_STEPS = 10_000
MAX_STAGES = 256


@dataclass(frozen=True)
class Command:
    """`words` are what is executed; of a shell's form there is one, a text for SHELL."""

    words: tuple[str, ...]
    is_shell: bool = True


def shell(text: str) -> Command:
    return Command((text,))


def execute(*words: str) -> Command:
    return Command(words, is_shell=False)


def literal(text: str) -> str:
    """`text` for an expanded field, with nothing in it that means something."""
    return "".join(f"\\{char}" if char in "\\$'\"" else char for char in text)


@dataclass(frozen=True, kw_only=True)
class Step:
    """`line` is where it stands, 0 if nowhere; `source` how it was written, for people."""

    line: int = 0
    source: str = ""

    @property
    def name(self) -> str:
        return type(self).__name__.upper()


@dataclass(frozen=True)
class Heredoc:
    """A file that is written in the Dockerfile itself. `expands`: its text is expanded."""

    name: str
    text: str
    expands: bool = True


@dataclass(frozen=True)
class Run(Step):
    """`script`: an interpreter's own text (`#!`), run as a file; `command` is nothing then."""

    command: Command
    script: str = ""
    network: str = ""


@dataclass(frozen=True)
class Copy(Step):
    """Files of the context, of another stage or of an image (`origin`). `sources` and `target` are
    expanded, `owner` (USER[:GROUP]) and `mode` too. `extracts`: it was ADD, which unpacks local
    archives."""

    sources: tuple[str, ...]
    target: str
    origin: str = ""
    owner: str = ""
    mode: str = ""
    heredocs: tuple[Heredoc, ...] = ()
    extracts: bool = False

    @property
    def name(self) -> str:
        return "ADD" if self.extracts else "COPY"


@dataclass(frozen=True)
class Env(Step):
    """Both of each pair are expanded."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Arg(Step):
    """Each with its default, which is expanded, or None."""

    names: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class Label(Step):
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Workdir(Step):
    path: str


@dataclass(frozen=True)
class User(Step):
    user: str


@dataclass(frozen=True)
class Entrypoint(Step):
    command: Command


@dataclass(frozen=True)
class Cmd(Step):
    command: Command


@dataclass(frozen=True)
class Expose(Step):
    ports: tuple[str, ...]


@dataclass(frozen=True)
class Shell(Step):
    words: tuple[str, ...]


@dataclass(frozen=True)
class Volume(Step):
    paths: tuple[str, ...]


@dataclass(frozen=True)
class StopSignal(Step):
    signal: str


@dataclass(frozen=True)
class Maintainer(Step):
    author: str


@dataclass(frozen=True)
class Healthcheck(Step):
    """Recorded. `command` None: NONE was written. Times in nanoseconds."""

    command: Command | None = None
    interval: int = 0
    timeout: int = 0
    start_period: int = 0
    start_interval: int = 0
    retries: int = 0


@dataclass(frozen=True)
class Stage:
    """From one FROM to the next. `base` is expanded by what stands before the first of them: the
    name of an image or of an earlier stage, or `scratch`."""

    base: str
    steps: tuple[Step, ...] = ()
    alias: str = ""
    platform: str = ""
    line: int = 0
    source: str = ""


@dataclass(frozen=True)
class Build:
    """All of it. `arguments`: those before the first stage. `notes`: what a reader should know."""

    stages: tuple[Stage, ...]
    arguments: tuple[Arg, ...] = ()
    notes: tuple[str, ...] = ()
    escape: str = "\\"
