"""`agentkernel run -- CMD`: a new sandbox, one command, nothing left."""

from __future__ import annotations

import argparse

from agentkernel.cli import project
from agentkernel.cli.fields import spec_fields
from agentkernel.cli.foreground import (
    collected,
    command_fields,
    fill_standard_descriptors,
    streamed,
)
from agentkernel.cli.outcome import finish
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import InvalidInputError

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any


def main(options: argparse.Namespace) -> int:
    fill_standard_descriptors()
    words = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    project.apply(options)
    if not words and options.image in (None, "host"):  # another may have one of its own
        raise InvalidInputError("no command given", hint="agentkernel run -- CMD ARGS…")
    transport = Transport()
    command = command_fields(options, words)
    life: dict[str, Any] = {} if options.ttl is None else {"ttl_seconds": options.ttl}
    spec = spec_fields(options, transport.daemon)
    if options.json:
        return collected(transport, "/v1/run", spec | life | command)
    around = {"spec": spec} | life
    ended = streamed(transport, "/v1/run/stream", command, options, around)
    if isinstance(ended, int):
        return ended
    return finish(ended, words[0] if words else options.image, options.timeout, options.ttl)
