"""One request for a new access token, made by the daemon itself.

It goes where the agent's definition says and nowhere else: over TLS, by the operator's setting of
the network as sandboxes' connections do, and a redirect is not followed, since a refresh token is
in the request. What comes back is bounded, and no word of it is shown but a known error code.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from contextlib import aclosing
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from agentkernel import __version__
from agentkernel.agents.credentials import MOST_BYTES
from agentkernel.agents.definition import OAuth
from agentkernel.documents import DocumentError, parse_json
from agentkernel.errors import InvalidInputError
from agentkernel.network.gateway import upstream_proxy
from agentkernel.network.gateway.flow import Refused
from agentkernel.network.gateway.upstream import ask_resolver
from agentkernel.network.policy.model import Operator

if TYPE_CHECKING:
    import httpx2

SECONDS: Final = 30.0
"""How long all of it may take."""

# What providers say of a refresh token that will never work again.
ENDED: Final = frozenset(
    {
        "invalid_grant", "refresh_token_expired", "refresh_token_reused",
        "refresh_token_invalidated", "token_expired", "token_revoked",
    }
)  # fmt: skip
_CODE: Final = re.compile(r"[a-z0-9_.-]{1,64}")


class TokenRefused(Exception):
    """There is no new token. `ended`: there never will be with this refresh token."""

    def __init__(self, words: str, *, ended: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.ended = ended


async def ask_token(oauth: OAuth, refresh: bytes, operator: Operator) -> bytes:
    """The answer's body. Raises TokenRefused."""
    host, _, _ = _split(oauth.token_url)
    try:
        async with asyncio.timeout(SECONDS):
            return await _ask(oauth, refresh, operator)
    except TimeoutError:
        raise TokenRefused(f"{host} did not answer in time") from None


async def _ask(oauth: OAuth, refresh: bytes, operator: Operator) -> bytes:
    # Loaded here: most daemons never ask.
    import httpx2

    host, port, target = _split(oauth.token_url)
    context = await asyncio.to_thread(_context, operator)
    proxy = None if host in operator.hosts else _proxy(operator, host, port)
    transport = httpx2.AsyncHTTPTransport(verify=context, proxy=proxy, trust_env=False, retries=0)
    content, kind = _body(oauth, refresh)
    at = host if port == 443 else f"{host}:{port}"
    address = host if proxy is not None else await _address(host, operator)
    request = httpx2.Request(
        "POST",
        httpx2.URL(scheme="https", host=address, port=port, raw_path=target.encode()),
        headers={
            "Host": at,
            "Content-Type": kind,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"agentkernel/{__version__}",
        },
        content=content,
        extensions={"sni_hostname": host},
    )
    try:
        response = await transport.handle_async_request(request)
        try:
            return await _answer(response, host)
        finally:
            await response.aclose()
    except (httpx2.TransportError, ssl.SSLError, OSError) as error:
        raise TokenRefused(f"{host} can't be reached: {_words(error)}") from None
    finally:
        await transport.aclose()


async def _answer(response: httpx2.Response, host: str) -> bytes:
    body = bytearray()
    async with aclosing(response.aiter_raw()) as blocks:
        async for block in blocks:
            body += block
            if len(body) > MOST_BYTES:
                raise TokenRefused(f"{host} answered more than {MOST_BYTES >> 10} KiB")
    status = response.status_code
    if status == 200:
        return bytes(body)
    if 300 <= status < 400:
        raise TokenRefused(f"{host} wants to send us elsewhere ({status}), which is not followed")
    code = _code(bytes(body))
    words = f"{host} answered {status}" + (f", {code}" if code else "")
    raise TokenRefused(words, ended=status in (400, 401, 403) and code in ENDED)


def _code(body: bytes) -> str:
    """A provider's word for what is wrong, if it is one: anything else may be anything."""
    try:
        document = parse_json(body.decode("utf-8"))
    except (UnicodeDecodeError, DocumentError):
        return ""
    found = document.get("error") if isinstance(document, dict) else None
    if isinstance(found, dict):
        found = found.get("code") or found.get("type")
    return found if isinstance(found, str) and _CODE.fullmatch(found) else ""


def _body(oauth: OAuth, refresh: bytes) -> tuple[bytes, str]:
    fields = {
        "grant_type": "refresh_token",
        "refresh_token": refresh.decode("ascii"),
        "client_id": oauth.client_id,
        "client_secret": oauth.client_secret,
        "scope": oauth.scope,
    }
    given = {name: value for name, value in fields.items() if value}
    if oauth.body == "form":
        return urlencode(given).encode(), "application/x-www-form-urlencoded"
    return json.dumps(given).encode(), "application/json"


def _split(url: str) -> tuple[str, int, str]:
    """Host, port and target. Raises InvalidInputError: the definition is the user's file."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
    except ValueError:
        host, port = "", 0
    if not host or not port or parts.scheme != "https" or parts.username is not None:
        raise InvalidInputError(
            "login.oauth.token_url of the agent's definition is not https://HOST/PATH"
        )
    return host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _proxy(operator: Operator, host: str, port: int) -> httpx2.Proxy | None:
    import httpx2

    try:
        found = upstream_proxy.find(operator.upstream_proxy, host, port)
    except Refused as error:
        raise TokenRefused(error.words) from None
    if found is None:
        return None
    where = f"[{found.host}]" if ":" in found.host else found.host
    basic = {"Proxy-Authorization": f"Basic {found.credentials}"}
    return httpx2.Proxy(
        f"http://{where}:{found.port}", headers=basic if found.credentials else None
    )


async def _address(host: str, operator: Operator) -> str:
    """What to dial: the operator's word, the operator's name server's, or the name itself."""
    if written := operator.hosts.get(host):
        return written
    if not operator.resolver:
        return host
    try:
        found = await ask_resolver(operator.resolver, host)
    except Refused as error:
        raise TokenRefused(error.words) from None
    if not found:
        raise TokenRefused(f"{host} has no address")
    return str(found[0])


def _context(operator: Operator) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if operator.upstream_ca:
        try:
            context.load_verify_locations(cafile=operator.upstream_ca)
        except OSError:  # ssl.SSLError is one
            raise TokenRefused(
                "the file of network.upstream_ca can't be read as certificates"
            ) from None
    return context


def _words(error: BaseException | None) -> str:
    """The cause's kind, or what the system says of it."""
    words = ""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return "its certificate is not trusted, or it does not speak TLS"
        if isinstance(error, OSError) and error.strerror:
            words = error.strerror.lower()
        words = words or type(error).__name__
        error = error.__cause__ or error.__context__
    return words
