"""One connection of a guest that is read as HTTP: request by request, each judged by the setting as
it is then, and passed on over one connection to the far side, which is made for the first of them
that is allowed."""

from __future__ import annotations

import contextlib

from agentkernel.network.gateway.flow import CapReached, Dialler, Flow
from agentkernel.network.intercept import answers
from agentkernel.network.intercept.answers import Answer
from agentkernel.network.intercept.exchange import Exchange, FarClosed
from agentkernel.network.intercept.guarding import Guard
from agentkernel.network.intercept.heads import (
    Header,
    Malformed,
    RequestHead,
    read_request_head,
)
from agentkernel.network.intercept.places import check_place, path_of
from agentkernel.network.intercept.upstream import reach
from agentkernel.network.intercept.wire import Lost, Wire
from agentkernel.network.policy.judging import judge_request
from agentkernel.network.policy.model import MCP_MACHINE

REPEATABLE = ("GET", "HEAD", "OPTIONS")
READS = frozenset(REPEATABLE)
"""A rule that allows nothing else is there so that nothing is sent."""


class Session:
    """Owns both wires; `run` leaves none open. `named`: the guest's TLS said the host's name."""

    def __init__(
        self, flow: Flow, dialler: Dialler, client: Wire, *, tls: bool, named: bool
    ) -> None:
        self._flow = flow
        self._dialler = dialler
        self._client = client
        self._tls = tls
        self._named = named
        self._far: Wire | None = None
        self._far_used = False
        # Of the request at hand, for events and answers; a path that holds a secret is not kept.
        self._method = ""
        self._path = ""
        self._answering = False

    async def run(self) -> None:
        try:
            while await self._one_request():
                pass
            await self._client.close()
        except (Lost, TimeoutError):
            pass
        finally:
            self._drop_far()
            self._client.abort()

    async def _one_request(self) -> bool:
        """False if it was the connection's last."""
        self._method = self._path = ""
        self._answering = False
        self._flow.extra.pop("request", None)
        try:
            head = await self._next_head()
            return head is not None and await self._serve(head)
        except Malformed as exc:
            answer = answers.malformed(exc.words)
        except CapReached as exc:
            answer = answers.limited(str(exc))
        except Answer as exc:
            answer = exc
        self._tell(answer)
        if self._answering:
            # Half a response is out: all that is left to say is that it is not whole.
            raise Lost
        with contextlib.suppress(CapReached):
            await self._answer(answer)
        return False

    async def _next_head(self) -> RequestHead | None:
        try:
            return await read_request_head(self._client)
        except TimeoutError:
            raise answers.late("head") from None

    async def _serve(self, head: RequestHead) -> bool:
        self._method = head.method
        # What is for this machine itself is on its way to nobody else.
        is_here = self._flow.host == MCP_MACHINE
        guard = Guard(self._flow, secure=is_here or (self._tls and self._named))
        self._path = guard.shown(head.target, path_of(head.target))
        target, alone = self._check(head)
        # Before it is judged: what a verdict says has the path in it, and goes into events.
        asked, headers = guard.request(target, self._headers(head))
        self._judge(head, path_of(target))
        while True:
            far = await self._reach()
            again = self._far_used and head.method in REPEATABLE and head.framing == "none"
            self._far_used = True
            exchange = Exchange(self._flow, self._client, far, head, guard, alone=alone)
            try:
                await exchange.run(asked, headers)
                break
            except FarClosed:
                # An idle connection that the far side closed just as it was used again?
                self._drop_far()
                if not again:
                    raise answers.fault(
                        f"{self._flow.host} closed the connection without a response",
                        check="response",
                    ) from None
            finally:
                self._answering = exchange.answering
        if not exchange.keeps_far:
            self._drop_far()
        return exchange.keeps_client

    def _headers(self, head: RequestHead) -> list[Header]:
        """As the far side is to see them. Preconditions: `host` was found to be the flow's."""
        headers = head.passed_on()
        if self._flow.host != MCP_MACHINE:
            return headers
        local = b"localhost:%d" % self._flow.port
        return [(name, local if name.lower() == b"host" else value) for name, value in headers]

    def _check(self, head: RequestHead) -> tuple[bytes, bool]:
        """The target to ask for, and whether the connection has to end with this request. Raises
        Answer."""
        verdict = self._flow.verdict
        if verdict.outcome == "deny":
            raise answers.denied(verdict.words, rule=verdict.rule, source=verdict.source)
        # A proxy's client sends requests to other hosts on the same connection; the next one has to
        # come on its own, so that it is a flow of its own.
        return check_place(head, self._flow.host, self._flow.port, tls=self._tls)

    def _judge(self, head: RequestHead, path: str) -> None:
        """By the setting as it is now. Raises Answer."""
        flow, method = self._flow, head.method
        policy, floor = flow.subject.setting.policy, flow.subject.operator.floor
        verdict = judge_request(policy, floor, flow.host, flow.port, method, path)
        if verdict.outcome != "allow":
            raise answers.denied(verdict.words, rule=verdict.rule, source=verdict.source)
        rule = policy.rules[verdict.rule - 1] if verdict.rule and not verdict.by_floor else None
        if rule and rule.methods and READS.issuperset(rule.methods) and _carries(head):
            words = "for reading: not with a body, and not to become a WebSocket"
            raise answers.denied(
                f"{verdict.words}, {words}", rule=verdict.rule, source=verdict.source
            )
        flow.extra["request"] = method, path  # a policy that allows it no more ends it
        flow.subject.emit(
            "network.allow",
            flow,
            method=method,
            path=self._path,
            rule=verdict.rule,
            source=verdict.source,
            reason=verdict.words,
        )

    async def _reach(self) -> Wire:
        far = self._far
        if far is not None and not far.is_quiet():
            # Closed while idle; or it speaks without being asked, and is not to be believed.
            self._drop_far()
            far = None
        if far is None:
            far = await reach(self._flow, self._dialler, tls=self._tls)
            self._far, self._far_used = far, False
        return far

    def _drop_far(self) -> None:
        if self._far is not None:
            self._far.abort()
            self._far = None

    def _tell(self, answer: Answer) -> None:
        self._flow.subject.emit(
            answer.kind,
            self._flow,
            method=self._method,
            path=self._path,
            rule=answer.rule,
            source=answer.source,
            reason=answer.words,
        )

    async def _answer(self, answer: Answer) -> None:
        response = answers.response_of(answer, self._flow, self._method, self._path)
        await self._client.write(response)
        await self._flow.subject.take(down=len(response))


def _carries(head: RequestHead) -> bool:
    """More goes out with it than the head."""
    return head.framing != "none" or bool(head.values(b"upgrade"))
