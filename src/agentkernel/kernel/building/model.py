"""What a build is asked for, and what it tells while it goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from agentkernel.network.policy.request import NetworkRequest

Word = Annotated[str, Meta(max_length=4096)]


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tags`: names that the image gets when it is whole. `target`: the stage to end with; the last
    one. `build_args`: values for ARGs. `no_cache`: every step is carried out again. `network`: what
    RUN may reach; as a sandbox of that profile, if none is given. `platform`: only this machine's.
    """

    tags: Annotated[list[Word], Meta(max_length=64)] = []
    target: Word = ""
    build_args: Annotated[
        dict[Word, Annotated[str, Meta(max_length=65536)]], Meta(max_length=512)
    ] = {}
    no_cache: bool = False
    network: NetworkRequest | None = None
    profile: Word = "moderate"
    platform: Word = ""
    memory_bytes: int | None = None
    cpus: float | None = None
    labels: Annotated[dict[Word, Word], Meta(max_length=256)] = {}


class BuildStarted(msgspec.Struct, frozen=True, kw_only=True):
    """`steps`: how many there will be."""

    steps: int
    notes: list[str] = []


class BuildStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step begins. `text`: as it is written; `line`: where, 0 if nowhere."""

    number: int
    steps: int
    text: str
    line: int = 0
    stage: str = ""


class BuildOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a command of step `number` wrote, stdout and stderr as they came."""

    number: int
    text: str


class BuildStepDone(msgspec.Struct, frozen=True, kw_only=True):
    """`cached`: it was there before. `layer`: the digest of the layer it made, if it made one."""

    number: int
    cached: bool = False
    layer: str = ""
    size: int = 0
    seconds: float = 0.0


class BuildNote(msgspec.Struct, frozen=True, kw_only=True):
    """Something that whoever builds should know: what is ignored, how far a pull is."""

    text: str


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """The image. `digest` is that of its manifest, `id` that of its config. `cached`: how many of
    its layers were there before, of `layers` that its steps make."""

    digest: str
    id: str
    names: list[str]
    layers: int
    cached: int
    seconds: float
    notes: list[str] = []


BuildEvent = BuildStarted | BuildStep | BuildOutput | BuildStepDone | BuildNote
# Who is told; a build waits for whoever takes its time.
Report = Callable[[BuildEvent], Awaitable[None]]
