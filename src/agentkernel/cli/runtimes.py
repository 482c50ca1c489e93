"""Whether `run` has an image to choose. Light: every `run` asks, and most have none."""

from __future__ import annotations

import argparse
import os

from agentkernel.config.finding import project_top
from agentkernel.detection import quick

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkernel.client._sync.transport import Transport
    from agentkernel.detection.choosing import Choice

AUTO = "auto"


def choose(
    options: argparse.Namespace, words: Sequence[str], transport: Transport
) -> Choice | None:
    """Puts the image in that the command and the project want, if nobody names one; None: there is
    nothing to choose."""
    if options.image not in (None, AUTO) or not words:
        return None
    options.image = None
    if not transport.daemon.shares_host:
        return None  # what is here says nothing about that machine
    try:
        directory = os.path.realpath(_directory(options.workspace))
    except OSError:
        return None  # the current directory is gone
    above = quick.directories_of(directory, project_top(directory))
    if quick.is_plain(words, above, os.environ.get("PATH", "")):
        return None
    from agentkernel.cli.images_auto import chosen_image, tell

    choice = chosen_image(options, words, directory, transport)
    if choice is not None:
        options.image = choice.image
        if not choice.plain and not options.quiet and not options.json:
            tell(choice)
    return choice


def _directory(workspace: str | None) -> str:
    """The project that the command is about: the one it gets, else where we are."""
    if workspace in (None, "none"):
        return os.getcwd()
    path, colon, mode = str(workspace).rpartition(":")
    path = path if colon and mode in ("cow", "ro", "rw") else str(workspace)
    return os.path.expanduser(path)
