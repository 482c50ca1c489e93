"""The proxy that the host itself has to use, if it has one."""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import socket
import urllib.parse
from typing import NamedTuple

from agentkernel.network.gateway import sockets
from agentkernel.network.gateway.flow import Refused
from agentkernel.network.gateway.targets import written

_HEAD_BYTES = 16 << 10
_SECONDS = 20.0
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")


class Proxy(NamedTuple):
    host: str
    port: int
    credentials: str | None = None


def find(setting: str, host: str, port: int) -> Proxy | None:
    """`setting`: that of the operator. Raises Refused if what it says is no proxy."""
    if setting == "none":
        return None
    if setting != "auto":
        return parse(setting)
    names = ("https_proxy", "HTTPS_PROXY") if port == 443 else ("http_proxy", "HTTP_PROXY")
    address = next(filter(None, map(os.environ.get, (*names, "all_proxy", "ALL_PROXY"))), None)
    if not address or _excluded(os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), host):
        return None
    return parse(address)


def parse(text: str) -> Proxy:
    parts = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        raise Refused("the host's own proxy is not of the form http://HOST:PORT")
    credentials = None
    if parts.username is not None:
        user = urllib.parse.unquote(parts.username)
        password = urllib.parse.unquote(parts.password or "")
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    return Proxy(parts.hostname, port, credentials)


def _excluded(listed: str | None, host: str) -> bool:
    """NO_PROXY as most programs read it: names with all below them, addresses, ranges, "*"."""
    for word in re.split(r"[,\s]+", listed or ""):
        word = word.lower().removeprefix("*").lstrip(".") or word
        if not word:
            continue
        if word == "*" or host == word or host.endswith(f".{word}"):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(word, strict=False):
                return True
        except ValueError:
            continue
    return False


async def ask(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """CONNECT; afterwards the socket is the other side's. Raises Refused."""
    target = written(host, port)
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.credentials:
        lines.append(f"Proxy-Authorization: Basic {proxy.credentials}")
    try:
        await sockets.send_all(sock, "\r\n".join([*lines, "", ""]).encode())
        head = await sockets.peek_until(sock, b"\r\n\r\n", _HEAD_BYTES, _SECONDS)
        if head is not None:
            sockets.consume(sock, len(head))
    except (OSError, TimeoutError):
        head = None
    status = _STATUS.match(head) if head else None
    if status is None:
        raise Refused(f"the host's proxy {proxy.host} did not answer")
    if not status.group(1).startswith(b"2"):
        raise Refused(f"the host's proxy {proxy.host} refused {target}: {status.group(1).decode()}")
