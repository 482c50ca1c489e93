"""A template: the steps that make an image, and how a sandbox of it begins.

It is kept as an image called `localhost/template/NAME`, with all of this in one of its labels: so
it is saved, loaded, counted and removed as any image, and a sandbox that was made from it knows for
ever what it was.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from agentkernel.errors import ImageInvalidError, InvalidInputError, UnsupportedError
from agentkernel.ids import check_name
from agentkernel.images.dockerfile.model import (
    Build,
    Copy,
    Env,
    Label,
    Run,
    Stage,
    Step,
    User,
    Workdir,
    literal,
    shell,
)
from agentkernel.images.oci.reference import LOCAL, parse_reference
from agentkernel.images.oci.store import StoredImage
from agentkernel.kernel.spec import SandboxSpec

LABEL = "agentkernel.template"
PREFIX = f"{LOCAL}/template/"
# In an archive beside the files that steps copy: what is to be made of them.
SPEC_FILE = ".agentkernel-template.json"
MAX_BYTES = 256 << 10

Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Script = Annotated[str, Meta(min_length=1, max_length=64 << 10)]
Seconds = Annotated[float, Meta(gt=0, le=3600)]


class ReadyCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a sandbox may be used: once a shell command ends with 0, a port takes connections, or
    the start command has written `log`. One of them."""

    command: Script | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    log: Text | None = None
    seconds: Seconds = 60.0


class Copied(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of the archive, by a path or a pattern in it. `owner`: USER[:GROUP]."""

    source: Text
    target: Text
    owner: Annotated[str, Meta(max_length=256)] = ""


class TemplateStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of these."""

    run: Script | None = None
    copy: Copied | None = None
    env: (
        Annotated[dict[Text, Annotated[str, Meta(max_length=32 << 10)]], Meta(max_length=256)]
        | None
    ) = None
    workdir: Text | None = None
    user: Text | None = None


class TemplateSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`base`: an image. `start`: a shell command that every start of a sandbox runs as a job, with
    the image's user, variables and directory."""

    base: Text
    steps: Annotated[list[TemplateStep], Meta(max_length=512)] = []
    start: Script | None = None
    ready: ReadyCheck | None = None
    description: Annotated[str, Meta(max_length=4096)] = ""


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """One that is here. `source`: the repository and the commit it was made from, if it was."""

    name: str
    image: str
    digest: str
    size_bytes: int
    created: str
    base: str
    steps: list[TemplateStep]
    start: str | None = None
    ready: ReadyCheck | None = None
    description: str = ""
    source: str = ""


class Kept(TemplateSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the label holds."""

    source: str = ""


def reference_of(name: str) -> str:
    """The image's name. Raises InvalidInputError for what can't be a template's."""
    check_name(name)
    return parse_reference(f"{PREFIX}{name}").name


def applied(spec: SandboxSpec) -> SandboxSpec:
    """A sandbox's spec that names a template, as one that names its image."""
    if spec.template is None:
        return spec
    image = reference_of(spec.template)
    if spec.image not in ("host", image):
        raise InvalidInputError("a sandbox is made from an image or from a template, not both")
    return msgspec.structs.replace(spec, image=image, template=None)


def check(spec: TemplateSpec) -> None:
    """Raises InvalidInputError, UnsupportedError."""
    if spec.base == "host" or spec.base.startswith(("/", ".", "~")):
        raise UnsupportedError(
            f"a template can't be made on {spec.base[:100]!r}: that is what is on this machine, "
            "which changes, and not an image",
            hint="name an image, such as debian:12; `agentkernel image import DIR NAME` makes one "
            "of a directory",
        )
    parse_reference(spec.base)
    for number, step in enumerate(spec.steps, 1):
        if sum(value is not None for value in msgspec.structs.astuple(step)) != 1:
            raise InvalidInputError(
                f"step {number} must have one of run, copy, env, workdir and user"
            )
    ready = spec.ready
    if ready and sum(one is not None for one in (ready.command, ready.port, ready.log)) != 1:
        raise InvalidInputError("a ready check has one of command, port and log")
    if ready and ready.log is not None and spec.start is None:
        raise InvalidInputError("without a start command nothing writes what `log` waits for")


def as_build(spec: TemplateSpec, source: str = "") -> Build:
    """The same as steps of a build. Every text stands for itself: nothing is expanded."""
    check(spec)
    steps = [_step(step) for step in spec.steps]
    kept = msgspec.json.encode(Kept(**msgspec.structs.asdict(spec), source=source)).decode()
    if len(kept) > MAX_BYTES:
        raise InvalidInputError(f"the template has more than {MAX_BYTES >> 10} KiB of text")
    steps.append(Label(((LABEL, literal(kept)),), source=f"LABEL {LABEL}"))
    return Build((Stage(literal(spec.base), tuple(steps), source=f"FROM {spec.base}"),))


def _step(step: TemplateStep) -> Step:
    if step.run is not None:
        return Run(shell(step.run), source=f"RUN {_line(step.run)}")
    if step.copy is not None:
        copied = step.copy
        return Copy(
            (literal(copied.source),),
            literal(copied.target),
            owner=literal(copied.owner),
            source=f"COPY {copied.source} {copied.target}",
        )
    if step.env is not None:
        pairs = tuple((literal(name), literal(value)) for name, value in step.env.items())
        return Env(pairs, source=f"ENV {' '.join(step.env)}")
    if step.workdir is not None:
        return Workdir(literal(step.workdir), source=f"WORKDIR {step.workdir}")
    assert step.user is not None
    return User(literal(step.user), source=f"USER {step.user}")


def _line(text: str) -> str:
    first, _, rest = text.strip().partition("\n")
    return f"{first} …" if rest else first


def is_template(image: str) -> bool:
    """Whether a sandbox's pinned image is a template's."""
    return image.startswith(PREFIX)


def kept_in(image: StoredImage) -> Kept | None:
    """What an image's label says. Raises ImageInvalidError for one that is not ours."""
    text = (image.config.process.labels or {}).get(LABEL)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Kept)
    except msgspec.MsgspecError as exc:
        raise ImageInvalidError(f"the image's label {LABEL} can't be read: {exc}") from None


def templates_of(image: StoredImage) -> list[Template]:
    """Those that an image is: as many as it has names of templates, if it has the label."""
    names = [name for name in image.names if name.startswith(PREFIX)]
    kept = kept_in(image) if names else None
    if kept is None:
        return []
    return [
        Template(
            name=name.removeprefix(PREFIX).partition(":")[0],
            image=parse_reference(name).familiar,
            digest=image.digest,
            size_bytes=image.size,
            created=image.config.created or "",
            **msgspec.structs.asdict(kept),
        )
        for name in names
    ]
