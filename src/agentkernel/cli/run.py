"""`agentkernel run -- CMD`: a new sandbox, one command, nothing left (unless it is kept)."""

from __future__ import annotations

import argparse
import os

from agentkernel.cli import here, project
from agentkernel.cli.fields import spec_fields
from agentkernel.cli.foreground import (
    collected,
    command_fields,
    fill_standard_descriptors,
    streamed,
)
from agentkernel.cli.outcome import finish, say
from agentkernel.client._sync.transport import Transport
from agentkernel.client.daemon import Daemon
from agentkernel.config.finding import project_top
from agentkernel.detection import quick
from agentkernel.errors import InvalidInputError

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from agentkernel.detection.choosing import Choice


def main(options: argparse.Namespace) -> int:
    fill_standard_descriptors()
    words = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    project.apply(options)
    if not words and options.image in (None, "auto", "host"):  # another may have one of its own
        raise InvalidInputError("no command given", hint="agentkernel run -- CMD ARGS…")
    transport = Transport()
    if options.keep is not None or options.branch is not None:
        return _in_kept(options, words, transport)
    _choose_here(options, transport)
    choice = _choice(options, words, transport)
    command = command_fields(options, words)
    life: dict[str, Any] = {} if options.ttl is None else {"ttl_seconds": options.ttl}
    spec = spec_fields(options, transport.daemon)
    if choice is not None:
        _add_choice(spec, choice)
    if options.json:
        told = None if choice is None else {"chosen": choice.to_dict()}
        return collected(transport, "/v1/run", spec | life | command, told)
    around = {"spec": spec} | life
    ended = streamed(transport, "/v1/run/stream", command, options, around)
    if isinstance(ended, int):
        return ended
    return finish(ended, words[0] if words else options.image, options.timeout, options.ttl)


def _add_choice(spec: dict[str, Any], choice: Choice) -> None:
    """The command's own program is what is to be run, whatever the image would begin with."""
    if choice.image != "host":
        spec.setdefault("entrypoint", [])
    elif choice.environment:
        spec["host_env"] = spec.get("host_env", {}) | choice.environment


def _choose_here(options: argparse.Namespace, transport: Transport) -> None:
    is_local = isinstance(transport.daemon, Daemon)
    here.choose(options, transport.daemon.state_dir, is_local=is_local)


def _in_kept(options: argparse.Namespace, words: list[str], transport: Transport) -> int:
    """In a sandbox that stays, and is made if it is not there."""
    from agentkernel.cli.kept import choose_branch, found_or_made

    if not words:
        raise InvalidInputError("no command given", hint="agentkernel run --keep NAME -- CMD ARGS…")
    name = choose_branch(options)
    if name is None:
        _choose_here(options, transport)
    _choice(options, words, transport)
    name = options.keep or name or ""
    sandbox = found_or_made(options, transport, name)
    command = command_fields(options, words)
    path = f"/v1/sandboxes/{sandbox.id}/exec"
    if options.json:
        return collected(transport, path, command)
    if not options.quiet:
        say(f"in the sandbox {name}, which stays; see `agentkernel diff {name}`")
    ended = streamed(transport, f"{path}/stream", command, options)
    return ended if isinstance(ended, int) else finish(ended, words[0], options.timeout)


def _choice(
    options: argparse.Namespace, words: Sequence[str], transport: Transport
) -> Choice | None:
    """Puts the image in that the command and the project want, if nobody names one; None: there is
    nothing to choose."""
    if options.image not in (None, "auto") or options.template is not None:
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
