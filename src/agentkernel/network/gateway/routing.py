"""Where a connection goes: from its destination and its first bytes to one of four ends.

Denied (HTTP is told why, everything else is reset), spliced, or handed to those who read its
requests. Nothing of it is consumed before it is known which.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Literal

from agentkernel.errors import InvalidInputError
from agentkernel.network.gateway import opening, proxy, resolver, sockets
from agentkernel.network.gateway.client_hello import ClientHello, HelloError
from agentkernel.network.gateway.flow import CapReached, Dialler, Flow, Refused
from agentkernel.network.gateway.messages import Via
from agentkernel.network.gateway.names import PROXY_ADDRESS, is_synthetic
from agentkernel.network.gateway.splice import IDLE_SECONDS, relay
from agentkernel.network.gateway.subjects import Connection, Sandbox
from agentkernel.network.gateway.targets import is_address
from agentkernel.network.policy.names import canonical_host

PROXY_PORTS = (3128, 1080)
SILENCE_SECONDS = 0.3
"""So long a client has the first word. Then it is one that waits for the server's."""


First = Literal["server"] | opening.Kind


class Denied(Exception):
    """The connection is reset; the words say why."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class Router:
    """Serves the connections of one sandbox."""

    def __init__(self, sandbox: Sandbox, dialler: Dialler) -> None:
        self._sandbox = sandbox
        self._dialler = dialler

    async def serve(self, connection: Connection, address: str, port: int) -> None:
        """Closes the client's socket in the end, whatever happens."""
        try:
            await self._route(connection, address, port)
        except (OSError, TimeoutError):
            pass  # either side broke off: nothing to tell, nobody to tell it to
        finally:
            connection.hang_up()

    async def _route(self, connection: Connection, address: str, port: int) -> None:
        if address.startswith(("127.", "0.")):
            self._refuse(address, port, "the gateway's own port is no way to anywhere")
        elif port == 53:
            await resolver.serve_stream(self._sandbox, connection.client)
        elif address == PROXY_ADDRESS:
            if port in PROXY_PORTS:
                await self._serve_proxy(connection)
            else:
                self._refuse(address, port, "the proxy is at ports 3128 and 1080")
        elif (host := self._host_of(address)) is None:
            self._refuse(address, port, "no name was ever given this address")
        else:
            await self._serve_flow(connection, self._flow(connection, host, port, "tcp"))

    def _host_of(self, host: str) -> str | None:
        """The name that a synthetic address stands for; any other host as it is."""
        if is_address(host) and is_synthetic(host):
            return self._sandbox.names.name_of(host)
        return host

    def _refuse(self, host: str, port: int, words: str, via: Via = "tcp") -> None:
        self._sandbox.tell("network.deny", via, host, words, port=port)

    def _flow(self, connection: Connection, host: str, port: int, via: Via) -> Flow:
        flow = Flow(
            self._sandbox, connection.client, host, port, via, self._sandbox.judge(host, port)
        )
        connection.flow = flow
        return flow

    # --- as an explicit proxy ---

    async def _serve_proxy(self, connection: Connection) -> None:
        client = connection.client
        try:
            async with asyncio.timeout(proxy.HANDSHAKE_SECONDS):
                asked = await proxy.read_request(client)
        except proxy.ProxyError as exc:
            self._refuse(PROXY_ADDRESS, 0, exc.words, "proxy")
            await _say_last(client, exc.reply)
            return
        host = self._host_of(asked.host)
        via: Via = "socks" if asked.form == "socks" else "proxy"
        if host is None:
            self._refuse(asked.host, asked.port, "no name was ever given this address", via)
            await _say_last(client, asked.refuse)
            return
        flow = self._flow(connection, host, asked.port, via)
        if asked.form == "absolute":
            await self._serve_http(connection, flow)
            return
        if flow.verdict.outcome == "deny":
            flow.subject.emit("network.deny", flow, method="CONNECT" if via == "proxy" else "")
            await _say_last(client, asked.refuse or _denial(flow))
            return
        await sockets.send_all(client, asked.accept)
        await self._serve_flow(connection, flow)

    # --- by the first bytes ---

    async def _serve_flow(self, connection: Connection, flow: Flow) -> None:
        upstream: socket.socket | None = None
        kind: First
        try:
            kind = await opening.read_opening(flow.client, SILENCE_SECONDS)
            if kind == "silent":
                if self._may_splice(flow):
                    upstream, kind = await self._let_server_begin(flow)
                elif flow.verdict.outcome != "deny":
                    kind = await opening.read_opening(flow.client, opening.OPENING_SECONDS)
            if kind == "http":
                if upstream is not None:
                    upstream.close()
                await self._serve_http(connection, flow)
            elif kind == "tls":
                await self._serve_tls(connection, flow, upstream)
            else:
                self._check_plain(flow, kind)
                await self._splice(flow, upstream)
        except Denied as exc:
            flow.subject.emit("network.deny", flow, reason=exc.words)
        except Refused as exc:
            kind_of = "network.deny" if exc.denied else "network.fault"
            flow.subject.emit(kind_of, flow, reason=exc.words)
        except CapReached as exc:
            flow.subject.emit("network.limit", flow, reason=str(exc))
        finally:
            if upstream is not None:
                upstream.close()

    def _may_splice(self, flow: Flow) -> bool:
        return flow.verdict.outcome == "allow" and not self._needs_interception(flow)

    def _needs_interception(self, flow: Flow) -> bool:
        return self._sandbox.needs_interception(flow.verdict, flow.host, flow.port)

    async def _let_server_begin(self, flow: Flow) -> tuple[socket.socket, First]:
        """Some servers have the first word (SSH, SMTP), so it is dialled already. What the client
        says first is looked at all the same if it comes first, however late."""
        upstream, _ = await self._dialler.dial(flow)
        try:
            first = await sockets.wait_any((flow.client, upstream), IDLE_SECONDS)
            if first is None:
                raise Denied("neither side has said anything for too long")
            if first is flow.client:
                kind = await opening.read_opening(flow.client, SILENCE_SECONDS)
                if kind != "silent":
                    return upstream, kind
            # The server's word came first; or the client has said that it will say nothing, and
            # may still listen.
            return upstream, "server"
        except BaseException:
            upstream.close()
            raise

    def _check_plain(self, flow: Flow, kind: First) -> None:
        """For what is neither TLS nor HTTP."""
        verdict = flow.verdict
        if verdict.outcome == "deny":
            raise Denied(verdict.words)
        if kind == "silent":
            raise Denied("the client said nothing")
        if kind == "unclear":
            raise Denied("it did not become clear what the client speaks")
        if verdict.outcome == "inspect":
            raise Denied(f"the rules for {flow.host} ask for methods or paths, and this is no HTTP")
        if kind == "server" and self._needs_interception(flow):
            # Since it was dialled; the client has said nothing yet.
            raise Denied(f"what is sent to {flow.host} has to be seen now")

    async def _serve_http(self, connection: Connection, flow: Flow) -> None:
        """Told or passed on, request by request; never spliced, or a second request on the same
        connection could name another host."""
        from agentkernel.network.intercept.serving import serve_http

        flow.via = "http" if flow.via == "tcp" else flow.via
        await serve_http(flow, self._dialler)
        connection.answered = True

    # --- TLS ---

    async def _serve_tls(
        self, connection: Connection, flow: Flow, upstream: socket.socket | None
    ) -> None:
        flow.via = "tls" if flow.via == "tcp" else flow.via
        if flow.verdict.outcome == "deny":
            raise Denied(flow.verdict.words)
        try:
            hello = await opening.read_hello(flow.client)
        except HelloError as exc:
            raise Denied(f"the TLS hello was refused: {exc}") from None
        intercepted = self._needs_interception(flow)
        self._check_hello(flow, hello, intercepted)
        if intercepted:
            from agentkernel.network.intercept.leaves import keep_authority_in
            from agentkernel.network.intercept.serving import serve_tls

            keep_authority_in(self._sandbox.state_dir)
            await serve_tls(flow, self._dialler, hello)
            connection.answered = True
        else:
            await self._splice(flow, upstream)

    def _check_hello(self, flow: Flow, hello: ClientHello, intercepted: bool) -> None:
        """The name within TLS has to be the one that was judged. Raises Denied."""
        name = self._name_in(hello)
        if is_address(flow.host):
            self._check_name_at_address(flow, name)
        elif name is None:
            if not flow.verdict.splice:
                raise Denied(
                    "the TLS hello names no server (no SNI), so nobody can tell whom it is for; "
                    f"a rule splice:{flow.host} lets it pass unseen"
                )
            flow.extra["unseen"] = True
        elif name != flow.host:
            raise Denied(f"the TLS hello names {name}, and the connection is to {flow.host}")
        if hello.encrypted and not intercepted:
            if not flow.verdict.splice:
                raise Denied(
                    "the TLS hello has an encrypted one in it (ECH), which may name another "
                    f"server; a rule splice:{flow.host} lets it pass unseen"
                )
            flow.extra["unseen"] = True

    def _name_in(self, hello: ClientHello) -> str | None:
        if hello.server_name is None:
            return None
        try:
            return canonical_host(hello.server_name)
        except InvalidInputError as exc:
            raise Denied(f"the TLS hello: {exc.message}") from None

    def _check_name_at_address(self, flow: Flow, name: str | None) -> None:
        """An address was dialled, and TLS may name a host there: then both have to be allowed, or
        an allowed address that serves many names would be a way to all of them."""
        if name is None or name == flow.host:
            return
        verdict = self._sandbox.judge(name, flow.port)
        if verdict.outcome == "deny":
            raise Denied(f"the TLS hello names {name}: {verdict.words}")
        if self._sandbox.needs_interception(verdict, name, flow.port):
            raise Denied(f"{name} has to be asked for by its name, not by an address")
        flow.extra["named"] = name

    # --- unseen bytes ---

    async def _splice(self, flow: Flow, upstream: socket.socket | None) -> None:
        flow.extra["spliced"] = True
        if upstream is None:
            upstream, _ = await self._dialler.dial(flow)
        flow.subject.emit("network.allow", flow, address=flow.extra.get("address", ""))
        await relay(flow.client, upstream, self._sandbox.account)


def _denial(flow: Flow) -> bytes:
    from agentkernel.network.intercept.answers import denied, response_of

    verdict = flow.verdict
    answer = denied(verdict.words, rule=verdict.rule, source=verdict.source)
    return response_of(answer, flow, "CONNECT", "")


async def _say_last(client: socket.socket, words: bytes) -> None:
    """Sends them in a way that they arrive: a reset right behind would take them along."""
    if not words:
        return
    await sockets.send_all(client, words)
    client.shutdown(socket.SHUT_WR)
    for _ in range(16):
        if not await sockets.wait_readable(client, 1.0) or not client.recv(65536):
            break
    client.close()
