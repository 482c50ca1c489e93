"""`agentkernel mcp`: sandboxes as tools of a model; and the same in a client's configuration."""

from __future__ import annotations

import argparse
import json
import shlex
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from agentkernel.cli import project
from agentkernel.cli.fields import spec_fields
from agentkernel.cli.values import printable
from agentkernel.errors import InvalidInputError, PolicyDeniedError
from agentkernel.mcp import require_extra
from agentkernel.mcp.operator import Operator

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from agentkernel.server.app import Service


def main(options: argparse.Namespace) -> int:
    match options.verb:
        case "install":
            return _install(options)
        case "uninstall":
            return _uninstall(options)
    operator = operator_of(options)
    require_extra()
    from agentkernel.mcp.stdio import serve

    serve(operator)
    return 0


def operator_of(options: argparse.Namespace) -> Operator:
    """What the flags and files allow. PolicyDeniedError for a project's file that widens."""
    project.apply(options)
    if (options.image or "host").startswith(("/", ".", "~")):
        raise PolicyDeniedError(
            f"sandboxes of MCP clients have the image host or one of a registry, not the directory "
            f"{options.image}",
            hint="take sandbox.image out of the configuration, or use -c none",
        )
    given = {
        "timeout_seconds": options.timeout,
        "ttl_seconds": options.ttl,
        "idle_seconds": options.idle_timeout,
        "on_ttl": options.on_ttl,
        "on_idle": options.on_idle,
    }
    return Operator(
        spec={**spec_fields(options), "env": dict(options.env)},
        labels=dict(options.label),
        **{name: value for name, value in given.items() if value is not None},
    )


def http_app(service: Service) -> AbstractAsyncContextManager[ASGIApp]:
    """What the daemon serves: with the user's configuration, and no project's. Loads much."""
    from agentkernel.cli.main import build_parser

    require_extra()
    from agentkernel.mcp.http import serving

    options = build_parser(["mcp"]).parse_args(["mcp", "-c", "none"])
    return serving(
        operator_of(options),
        str(service.kernel.state_dir),
        hosts=service.hosts,
        origins=service.origins,
    )


def _install(options: argparse.Namespace) -> int:
    from agentkernel.mcp.clients import CLIENTS
    from agentkernel.mcp.install import install, server_words

    flags = _flags(options.args)
    client = CLIENTS[options.client]
    entry = client.entry([*server_words(), "mcp", *flags])
    if options.print:
        print(_snippet(client.format, {client.table: {options.server_name: entry}}))
        return 0
    done = install(options.client, scope=options.scope, name=options.server_name, flags=flags)
    if options.json:
        print(json.dumps({**_told(options, done), "entry": entry}))
        return 0
    verb = "added to" if done.changed else "is already in"
    print(f"{options.server_name} {verb} {printable(done.path)}")
    if done.backup:
        print(f"as it was: {printable(done.backup)}")
    print(client.after)
    return 0


def _uninstall(options: argparse.Namespace) -> int:
    from agentkernel.mcp.install import uninstall

    done = uninstall(options.client, scope=options.scope, name=options.server_name)
    if options.json:
        print(json.dumps(_told(options, done)))
    else:
        verb = "taken out of" if done.changed else "is not in"
        print(f"{options.server_name} {verb} {printable(done.path)}")
    return 0


def _told(options: argparse.Namespace, done: Any) -> dict[str, Any]:
    return {
        "client": options.client,
        "file": done.path,
        "changed": done.changed,
        "backup": done.backup,
    }


def _flags(text: str) -> list[str]:
    """Checked: what stands in a client's file has to work when nobody looks."""
    from agentkernel.cli.main import build_parser

    try:
        flags = shlex.split(text)
    except ValueError as exc:
        raise InvalidInputError(f"--args can't be split into words: {exc}") from None
    if build_parser(["mcp"]).parse_args(["mcp", *flags]).verb is not None:
        raise InvalidInputError("--args are flags of `agentkernel mcp`, without a verb")
    return flags


def _snippet(format: str, body: dict[str, Any]) -> str:
    if format == "json":
        return json.dumps(body, indent=2, ensure_ascii=False)
    require_extra("tomlkit")
    import tomlkit

    return tomlkit.dumps(body).rstrip()
