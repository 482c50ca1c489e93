"""One request of a preview: sent to the guest's port, and its answer sent back as it comes.

The guest's side is spoken with h11, which takes no answer that can be read in two ways; the
client's side is the server's own. A connection to the guest carries one request. What must hold:
nothing is held of a body but what is on its way, and a guest that floods, lies or says nothing
costs one connection.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from agentkernel.errors import AgentKernelError, GuestPortError, GuestTimeoutError
from agentkernel.guest.tcp import GuestConnection
from agentkernel.kernel import port_relay
from agentkernel.server import preview_heads
from agentkernel.server.preview_heads import Target
from agentkernel.server.problems import RequestError

MAX_HEAD_BYTES: Final = 64 << 10
# Answers that are none yet (100, 103): a guest may not send them for ever.
_MAX_INTERIM: Final = 32


class Exchange:
    """A request and its answer. `begun`: the client has been sent the beginning of the answer."""

    def __init__(
        self, target: Target, scope: Scope, receive: Receive, send: Send, seconds: float
    ) -> None:
        self.begun = False
        self._target = target
        self._scope = scope
        self._receive = receive
        self._send = send
        self._seconds = seconds
        self._guest = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._clock: asyncio.Timeout | None = None
        self._upgrade = preview_heads.is_upgrade(scope)
        self._switched = False
        framing = preview_heads.body_framing(scope)
        if self._upgrade and framing:
            raise RequestError(400, "a request for a WebSocket has no body")
        try:
            self._request = h11.Request(
                method=scope["method"],
                target=preview_heads.request_target(target, scope),
                headers=[*preview_heads.request_headers(target, scope), *framing],
            )
        except h11.LocalProtocolError as exc:
            raise RequestError(400, f"this request can't be passed on: {exc}") from None

    async def run(self, inside: GuestConnection) -> None:
        """Raises ClientDisconnect, and what is to be told of a guest that fails, if `begun` is not
        set; later the client's connection has to be cut."""
        await self._write(inside, self._request)
        if self._upgrade:
            # Before any answer is read: only then can it be one that switches.
            await self._write(inside, h11.EndOfMessage())
        answer = asyncio.create_task(self._answer(inside))
        upload = asyncio.create_task(self._upload(inside))
        tasks = {answer, upload}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                upload.result()  # it ends only with the client, or by a failure
            await answer
        finally:
            await port_relay.ended(*tasks)

    # -- to the guest ---------------------------------------------------------------------------

    async def _write(self, inside: GuestConnection, event: Any) -> None:
        try:
            data = self._guest.send(event)
        except h11.LocalProtocolError as exc:
            raise RequestError(400, f"the body is not as it was announced: {exc}") from None
        if data:
            await inside.write(data)

    async def _upload(self, inside: GuestConnection) -> None:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                await self._gone()
            if body := message.get("body"):
                await self._write(inside, h11.Data(data=body))
                self._wait_anew()
            more = message.get("more_body", False)
        if not self._upgrade:
            await self._write(inside, h11.EndOfMessage())
            self._wait_anew()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        await self._gone()

    async def _gone(self) -> None:
        """What HTTP calls gone has only gone on to something else, if the protocol was switched."""
        if self._switched:
            await asyncio.Event().wait()
        raise ClientDisconnect

    def _wait_anew(self) -> None:
        """A guest that takes a long body has its time for the answer from the body's end."""
        if self._clock is not None and not self._clock.expired() and not self.begun:
            self._clock.reschedule(asyncio.get_running_loop().time() + self._seconds)

    # -- from the guest -------------------------------------------------------------------------

    async def _next(self, inside: GuestConnection) -> Any:
        while True:
            try:
                event = self._guest.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._guest.receive_data(await inside.read())
            except h11.RemoteProtocolError as exc:
                raise GuestPortError(
                    f"the server on port {self._target.port} in the sandbox does not answer in "
                    f"HTTP: {exc}",
                    port=self._target.port,
                ) from None

    async def _answer(self, inside: GuestConnection) -> None:
        try:
            async with asyncio.timeout(self._seconds) as self._clock:
                head = await self._head(inside)
        except TimeoutError:
            raise GuestTimeoutError(
                f"the server on port {self._target.port} in the sandbox did not answer within "
                f"{self._seconds:g} s",
                port=self._target.port,
            ) from None
        headers = preview_heads.answer_headers(self._target, list(head.headers))
        if isinstance(head, h11.InformationalResponse):
            await self._switch(inside, headers)
            return
        if preview_heads.values_of(self._scope, b"upgrade"):
            headers.append((b"connection", b"close"))  # what follows may be no HTTP
        self.begun = True
        await self._send(
            {"type": "http.response.start", "status": head.status_code, "headers": headers}
        )
        while isinstance(event := await self._next(inside), h11.Data):
            await self._send(
                {"type": "http.response.body", "body": bytes(event.data), "more_body": True}
            )
        await self._send({"type": "http.response.body", "body": b""})

    async def _head(self, inside: GuestConnection) -> Any:
        """The answer's head; an InformationalResponse is the 101 that was asked for."""
        for _ in range(_MAX_INTERIM):
            event = await self._next(inside)
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                break
            if event.status_code == 101:
                return event
        raise GuestPortError(
            f"the server on port {self._target.port} in the sandbox ends without an answer",
            port=self._target.port,
        )

    async def _switch(self, inside: GuestConnection, headers: preview_heads.Headers) -> None:
        """Bytes both ways from here on."""
        self.begun = self._switched = True
        lines = [b"HTTP/1.1 101 Switching Protocols"]
        lines += [name + b": " + value for name, value in headers]
        lines += [b"connection: Upgrade", b"upgrade: websocket", b"", b""]
        rest, _ = self._guest.trailing_data
        with self._scope["state"]["connection"].taken_over() as (reader, writer):
            writer.write(b"\r\n".join(lines) + bytes(rest))
            try:
                await port_relay.relay(reader, writer, inside)
            except (AgentKernelError, OSError):
                port_relay.reset(writer)
            else:
                await port_relay.close(writer)
