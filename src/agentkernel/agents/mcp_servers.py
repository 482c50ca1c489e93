"""MCP servers that an agent is to have: what the sandbox has to reach for them, and how they look
from inside.

A command runs inside. A server elsewhere is reached by its name through the gateway, one on this
machine's loopback by the name MCP_MACHINE, at its own port and path and no other. What headers and
variables hold of secrets is written as ${NAME}, and is a placeholder inside.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from agentkernel.agents.model import McpServer
from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.model import (
    MCP_MACHINE,
    OUR_NAMES,
    THIS_MACHINE,
    TOOLS_HOST,
    TOOLS_PATH,
    TOOLS_PORT,
    Rule,
    SecretBinding,
)
from agentkernel.network.policy.targets import check_rule, parse_target
from agentkernel.network.secrets.bindings import parse_binding
from agentkernel.network.secrets.presets import preset_of_name

TOOLS_NAME: Final = "agentkernel"
"""What agents call the server with the sandbox's own tools."""
PROJECT_FILE: Final = ".mcp.json"
MOST_SERVERS: Final = 32
_MOST_FILE: Final = 256 << 10
_MOST_TEXT: Final = 8192
_MOST_ENTRIES: Final = 64
_SECRET: Final = re.compile(r"\$\{([A-Za-z0-9_-]{1,64})\}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}\Z")
# Words of headers that hold credentials.
_CREDENTIAL: Final = re.compile(r"auth|token|key|secret|cookie|password|session", re.IGNORECASE)


class McpAdditions(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox gets for an agent's servers. `servers`: as they look from inside, with ${NAME}
    where `with_placeholders` puts placeholders. `rules`: for the phase in which the agent works.
    `secrets`: as in SandboxSpec."""

    servers: tuple[McpServer, ...] = ()
    rules: tuple[Rule, ...] = ()
    secrets: tuple[str, ...] = ()


def servers_for(
    servers: Sequence[McpServer], *, sandbox_tools: bool, secrets: Sequence[str] = ()
) -> McpAdditions:
    """`secrets`: those that the sandbox has besides, as in SandboxSpec. Raises InvalidInputError.

    Whoever asks for servers asks for their rules: a caller who may not have `rules` may not have
    the servers.
    """
    if len(servers) > MOST_SERVERS:
        raise InvalidInputError(f"an agent has at most {MOST_SERVERS} MCP servers")
    made = [_addition(server, secrets) for server in servers]
    if sandbox_tools:
        made.append(_TOOLS)
    names = [server.name for each in made for server in each.servers]
    for name in names:
        if names.count(name) > 1:
            own = " (the sandbox's own tools)" if name == TOOLS_NAME and sandbox_tools else ""
            raise InvalidInputError(
                f"two MCP servers are named {name}{own}", hint="give one of them another name"
            )
    return McpAdditions(
        servers=tuple(server for each in made for server in each.servers),
        rules=tuple(dict.fromkeys(rule for each in made for rule in each.rules)),
        secrets=tuple(dict.fromkeys(text for each in made for text in each.secrets)),
    )


def with_placeholders(
    servers: Iterable[McpServer], bound: Iterable[SecretBinding]
) -> list[McpServer]:
    """The servers with what the new sandbox was given in place of ${NAME}."""
    known = {each.reference.rpartition("/")[2]: each.placeholder for each in bound}

    def put(texts: Mapping[str, str]) -> dict[str, str]:
        return {
            name: _SECRET.sub(lambda found: known.get(found[1], found[0]), text)
            for name, text in texts.items()
        }

    return [
        msgspec.structs.replace(each, env=put(each.env), headers=put(each.headers))
        for each in servers
    ]


def unbound_secrets(servers: Iterable[McpServer], bound: Iterable[SecretBinding]) -> list[str]:
    """Secrets that the servers name and the sandbox has not."""
    known = {each.reference.rpartition("/")[2] for each in bound}
    used = [name for each in servers for texts in (each.env, each.headers)
            for name in _secrets_in(texts)]  # fmt: skip
    return [name for name in dict.fromkeys(used) if name not in known]


_TOOLS: Final = McpAdditions(
    servers=(McpServer(name=TOOLS_NAME, url=f"http://{TOOLS_HOST}{TOOLS_PATH}"),),
    rules=(
        Rule(
            host=TOOLS_HOST,
            ports=(TOOLS_PORT,),
            paths=(TOOLS_PATH,),
            source="the sandbox's own tools",
        ),
    ),
)


def _addition(server: McpServer, secrets: Sequence[str]) -> McpAdditions:
    if bool(server.command) == bool(server.url):
        raise _wrong(server, "needs a command or a url, one of them")
    for texts in (server.env, server.headers):
        if len(texts) > _MOST_ENTRIES or any(len(text) > _MOST_TEXT for text in texts.values()):
            raise _wrong(server, "has too many or too long variables or headers")
    rules = [parse_target(text, source=f"the MCP server {server.name}") for text in server.allow]
    wanted = list(server.secrets)
    if server.command:
        if server.headers:
            raise _wrong(server, "has headers, which a command does not get")
        given = {parse_binding(text).name for text in (*secrets, *wanted)}
        for name in _secrets_in(server.env):
            if name not in given and preset_of_name(name) is None:
                raise _wrong(
                    server,
                    f"uses the secret {name}, and nobody says where that may go",
                    hint=f'add secrets = ["{name}@HOST"] to it, or --secret {name}@HOST',
                )
            if name not in given:
                wanted.append(name)
        return McpAdditions(servers=(server,), rules=tuple(rules), secrets=tuple(wanted))
    if server.env:
        raise _wrong(server, "has variables, which a server elsewhere does not get")
    place = _place(server)
    rules.append(place.rule)
    wanted += _header_secrets(server, place)
    shown = msgspec.structs.replace(server, url=place.url)
    return McpAdditions(servers=(shown,), rules=tuple(rules), secrets=tuple(wanted))


class _Place(msgspec.Struct, frozen=True):
    """Where a server is for the guest."""

    url: str
    host: str
    port: int
    rule: Rule
    private_way: bool


def _place(server: McpServer) -> _Place:
    try:
        parts = urlsplit(server.url)
        host, port = (parts.hostname or "").lower().removesuffix("."), parts.port
    except ValueError:
        raise _wrong(server, "has no proper url") from None
    if parts.scheme not in ("http", "https") or not host or not server.url.isprintable():
        raise _wrong(server, "has a url that is neither http:// nor https://")
    if parts.username is not None or parts.fragment or "\\" in server.url or " " in server.url:
        raise _wrong(
            server,
            "has a url with a user, a fragment or a blank in it",
            hint='a credential is a header: Authorization = "Bearer ${NAME}"',
        )
    if "*" in parts.path:
        # In a rule it would stand for other paths.
        raise _wrong(server, "can't be reached: its url has a * in its path")
    port = port or (443 if parts.scheme == "https" else 80)
    source = f"the MCP server {server.name}"
    if _is_here(host):
        if parts.scheme == "https":
            raise _wrong(
                server,
                "is on this machine and speaks TLS, whose certificate nobody inside could check",
                hint="let it listen with plain http on 127.0.0.1",
            )
        path = parts.path or "/"
        rule = Rule(host=MCP_MACHINE, ports=(port,), paths=(path,), source=source)
        url = _with_host(parts, f"{MCP_MACHINE}:{port}", path)
        return _Place(url, MCP_MACHINE, port, _checked(server, rule), True)
    if host.endswith(OUR_NAMES) or "*" in host:
        raise _wrong(server, f"can't be at {host[:64]!a}, which is no host's own name")
    rule = _checked(server, Rule(host=host, ports=(port,), source=source))
    if rule.private:
        # Of what is not everybody's, no more than was asked for.
        rule = _checked(server, msgspec.structs.replace(rule, paths=(parts.path or "/",)))
    return _Place(server.url, host, port, rule, parts.scheme == "https")


def _checked(server: McpServer, rule: Rule) -> Rule:
    try:
        return check_rule(rule, source=rule.source)
    except InvalidInputError as error:
        raise _wrong(server, f"can't be reached: {error.message}", hint=error.hint) from None


def _with_host(parts: SplitResult, host: str, path: str) -> str:
    return parts._replace(netloc=host, path=path).geturl()


def _is_here(host: str) -> bool:
    if host in ("localhost", THIS_MACHINE, MCP_MACHINE) or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _header_secrets(server: McpServer, place: _Place) -> list[str]:
    """The secrets that its headers hold, each bound to the one header of this one host."""
    found = []
    for name, text in server.headers.items():
        if not _HEADER.match(name) or not text.isprintable():
            raise _wrong(server, f"has a header that is none: {name[:64]!a}")
        used = _SECRET.findall(text)
        if not used and _CREDENTIAL.search(name):
            raise _wrong(
                server,
                f"has a credential in its header {name}, and no value may enter a sandbox",
                hint="keep it as a secret (agentkernel secret set NAME) and write ${NAME} there",
            )
        if used and not place.private_way:
            raise _wrong(server, "has a secret in a header, which goes by https:// only")
        word = "" if name.lower() == "authorization" else f",header={name.lower()}"
        found += [f"{secret}@{place.host}:{place.port}{word}" for secret in used]
    for text in found:
        parse_binding(text)
    return found


def _secrets_in(texts: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(name for text in texts.values() for name in _SECRET.findall(text)))


def _wrong(server: McpServer, words: str, *, hint: str | None = None) -> InvalidInputError:
    return InvalidInputError(f"the MCP server {server.name} {words}", hint=hint)


# -- files ---------------------------------------------------------------------------------------


def chosen_servers(
    wanted: Sequence[str], known: Mapping[str, Mapping[str, Any]]
) -> list[McpServer]:
    """Those of a configuration (`[mcp.NAME]`) that somebody names: `all`, `none`, or their names.
    Raises InvalidInputError."""
    names = [name for text in wanted for name in text.split(",") if name]
    if names == ["none"] or not names:
        return []
    if names == ["all"]:
        names = sorted(known)
    for name in names:
        if name not in known:
            have = ", ".join(sorted(known)) or "none"
            raise InvalidInputError(
                f"there is no MCP server {name[:64]!a}",
                hint=f"servers are sections [mcp.NAME] of your config.toml; there are: {have}",
            )
    return [_server(name, known[name]) for name in dict.fromkeys(names)]


def project_servers(project: str) -> list[McpServer]:
    """Those of a project's own file, none if it has no such file. For one that the user trusts:
    what is in it still is whatever somebody wrote. Blocking. Raises InvalidInputError."""
    path = f"{project}/{PROJECT_FILE}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise InvalidInputError(f"{path} can't be read: {exc.strerror}") from None
    try:
        data = os.read(fd, _MOST_FILE + 1)
    except OSError as exc:
        raise InvalidInputError(f"{path} can't be read: {exc.strerror}") from None
    finally:
        os.close(fd)
    if len(data) > _MOST_FILE:
        raise InvalidInputError(f"{path} has more than {_MOST_FILE >> 10} KiB")
    return read_servers(data, path)


def read_servers(data: bytes, path: str = PROJECT_FILE) -> list[McpServer]:
    """The servers of a file `{"mcpServers": {NAME: {…}}}`. Raises InvalidInputError."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidInputError(f"{path} is no JSON") from None
    entries = document.get("mcpServers", {}) if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise InvalidInputError(f'{path} has no object "mcpServers"')
    if len(entries) > MOST_SERVERS:
        raise InvalidInputError(f"{path} names more than {MOST_SERVERS} servers")
    found = []
    for name, entry in entries.items():
        try:
            found.append(_server(name, _plain(entry)))
        except (InvalidInputError, ValueError) as exc:
            words = exc.message if isinstance(exc, InvalidInputError) else str(exc)
            raise InvalidInputError(f"{path}: {name[:64]!a}: {words}") from None
    return found


def _plain(entry: Any) -> dict[str, Any]:
    """An entry of a file of Claude's kind as one of ours. Raises ValueError."""
    if not isinstance(entry, dict):
        raise ValueError("not an object")
    kind = entry.get("type", "http" if "url" in entry else "stdio")
    if kind == "stdio":
        words = [entry.get("command"), *_listed(entry.get("args", []))]
        return {"command": words, "env": entry.get("env", {})}
    if kind in ("http", "streamable-http"):
        return {"url": entry.get("url"), "headers": entry.get("headers", {})}
    raise ValueError(f"servers of the type {str(kind)[:32]!a} are not supported")


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("args is not a list")
    return value


def _server(name: str, entry: Mapping[str, Any]) -> McpServer:
    try:
        server = msgspec.convert({"name": name, **entry}, McpServer)
    except msgspec.ValidationError as exc:
        raise InvalidInputError(f"no MCP server: {exc}") from None
    if not all("\0" not in word for word in (*server.command, *server.env.values(), server.url)):
        raise InvalidInputError("no MCP server: a word has a NUL in it")
    return server
