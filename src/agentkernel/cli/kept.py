"""Sandboxes that are made when they are first named, and found again: `run --keep`, `--branch`."""

from __future__ import annotations

import argparse
import hashlib
import os
import re

from agentkernel.cli.fields import spec_fields
from agentkernel.cli.here import repository_top
from agentkernel.cli.notices import tell_once
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import ConflictError, InvalidInputError, NotFoundError
from agentkernel.places import state_path
from agentkernel.workspaces.git import find_git


def choose_branch(options: argparse.Namespace) -> str | None:
    """With --branch: fills in the repository's directory, and gives the name that the sandbox of
    that branch has, from whichever of its directories one asks; None: without it."""
    branch: str | None = options.branch
    if branch is None:
        return None
    directory = None
    if options.workspace not in (None, "none"):
        directory = options.workspace.rpartition(":")[0] or options.workspace
        if not os.path.isdir(directory):
            directory = options.workspace
    top = repository_top(os.path.realpath(os.path.expanduser(directory or os.getcwd())))
    place = None if top is None else find_git(top)
    if place is None:
        raise InvalidInputError(
            f"{directory or 'this directory'} is in no git repository, so it has no branches",
            hint="go to one, or name it with --workspace DIR",
        )
    options.workspace = f"{place.top}:cow"
    if os.path.basename(place.common) == ".git":
        repository = os.path.basename(os.path.dirname(place.common))
    else:
        repository = os.path.basename(place.common).removesuffix(".git")
    words = re.sub(r"[^a-z0-9]+", "-", f"{repository}-{branch}".lower()).strip("-")[:48]
    mark = hashlib.sha256(f"{place.common}\0{branch}".encode("utf-8", "surrogateescape"))
    return f"{words or 'branch'}-{mark.hexdigest()[:6]}"


def found_or_made(
    options: argparse.Namespace, transport: Transport, name: str, **more: object
) -> Sandbox:
    """The sandbox of that name, running; if there is none, as the options say."""
    try:
        sandbox = Sandbox.connect(name, transport=transport)
    except NotFoundError:
        try:
            return _made(options, transport, name, more)
        except ConflictError:
            # Somebody else has made it this moment, or it is a conflict of another kind.
            sandbox = Sandbox.connect(name, transport=transport)
    if sandbox.info.state != "running":
        sandbox.start()
    return sandbox


def _made(
    options: argparse.Namespace, transport: Transport, name: str, more: dict[str, object]
) -> Sandbox:
    sandbox = Sandbox.create(
        name=name,
        kept=True,
        ttl_seconds=options.ttl,
        transport=transport,
        **more,  # type: ignore[arg-type]
        **spec_fields(options, transport.daemon),
    )
    if not options.json:
        notices = sandbox.info.raw.get("notices", ())
        tell_once(state_path(), notices, f"agentkernel sandbox info {name}")
    return sandbox
