"""Which image `run` takes when nobody names one, and what it says about that."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from agentkernel.cli.outcome import say
from agentkernel.cli.values import printable
from agentkernel.config.finding import project_top
from agentkernel.detection import quick
from agentkernel.detection.choosing import Choice, choose
from agentkernel.detection.detecting import detect
from agentkernel.detection.host import Machine

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from agentkernel.client._sync.transport import Transport

MEMORY = "tools.json"


def chosen_image(
    options: argparse.Namespace, words: Sequence[str], directory: str, transport: Transport
) -> Choice | None:
    """None: nothing tells, so there is nothing to choose."""
    top = project_top(directory)
    wanted = detect(words, directory, top=top)
    if wanted is None:
        return None
    return choose(
        wanted,
        this_machine(
            quick.directories_of(directory, top),
            memory=os.path.join(transport.daemon.state_dir, MEMORY),
            toolchains=options.toolchains != "none",
        ),
        is_stored=lambda reference: _is_stored(transport.daemon.state_dir, reference),
        is_reachable=lambda reference: _is_reachable(transport, reference),
    )


def _is_stored(state_dir: str, reference: str) -> bool:
    """The store is files: no daemon is asked."""
    directory = os.path.join(state_dir, "images")
    if not os.path.isdir(os.path.join(directory, "names")):
        return False
    from agentkernel.images.oci.store import ImageStore

    return ImageStore(directory).find_digest(reference) is not None


def _is_reachable(transport: Transport, reference: str) -> bool:
    """The daemon asks, briefly; one that is not there or does not know is no reason to fail."""
    from agentkernel.client._sync.images import Images
    from agentkernel.errors import AgentKernelError

    try:
        return Images(transport).in_reach(reference)
    except AgentKernelError:
        return False


def this_machine(
    projects: Sequence[str], *, memory: str | None = None, toolchains: bool = True
) -> Machine:
    return Machine(
        os.environ,
        visible=_Shown(toolchains),
        projects=projects,
        memory=memory,
    )


class _Shown:
    """Whether the `host` image shows a program that is outside /usr. Looked up once, if at all."""

    def __init__(self, toolchains: bool) -> None:
        self._toolchains = toolchains
        self._directories: frozenset[str] | None = None

    def __call__(self, path: str) -> bool:
        if not self._toolchains:
            return False
        if self._directories is None:
            from agentkernel.images.toolchains import find

            found = find(
                os.environ.get("PATH", ""),
                os.environ.get("HOME", ""),
                ["/usr", "/bin", "/sbin", "/lib"],
                environment=os.environ,
            )
            self._directories = frozenset(found.path)
        directory = os.path.dirname(path)
        return directory in self._directories or os.path.realpath(directory) in self._directories


def tell(choice: Choice) -> None:
    """One line, and how to have it otherwise."""
    instead = "--image host: this machine's own" if choice.image != "host" else "--image: another"
    say(printable(f"image {choice.image}: {choice.why} ({instead})"))
