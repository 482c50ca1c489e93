"""A range that is denied stays out of reach by name."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentkernel.network.gateway.flow import Flow, Refused, Subject
from agentkernel.network.gateway.upstream import HostDialler
from agentkernel.network.policy.judging import judge_connection
from agentkernel.network.policy.model import NetworkSetting, Operator, Policy, Rule
from agentkernel.network.policy.names import Address, parse_address

LOOPBACK = Rule(host="mirror.example", ports=(1,), private=True)
DENIED = Rule(action="deny", host="127.0.0.0/8")


async def _dial(rules: tuple[Rule, ...], floor: Policy | None, port: int) -> str:
    rules = tuple(
        Rule(host=r.host, ports=(port,), private=True) if r is LOOPBACK else r for r in rules
    )
    setting = NetworkSetting(phases={"default": Policy(rules=rules)})
    subject: Any = SimpleNamespace(
        id="s", setting=setting, operator=Operator(floor=floor, upstream_proxy="none")
    )
    verdict = judge_connection(setting.policy, floor, "mirror.example", port)
    flow = Flow(
        subject=cast(Subject, subject), client=socket.socket(), host="mirror.example", port=port,
        via="tcp", verdict=verdict,
    )  # fmt: skip
    dialler = HostDialler()
    try:
        sock, address = await dialler.dial(flow)
        sock.close()
        return address
    finally:
        flow.client.close()
        dialler.close()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_by_name(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolved(self: HostDialler, host: str, *_: object) -> list[Address]:
        return [parse_address("127.0.0.1")]

    monkeypatch.setattr(HostDialler, "_ask_system", resolved)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert await _dial((LOOPBACK,), None, port) == "127.0.0.1"
        assert await _dial((LOOPBACK, DENIED), None, port) == "127.0.0.1"
        with pytest.raises(Refused, match=r"rule 1 of the sandbox's policy \(deny 127") as caught:
            await _dial((DENIED, LOOPBACK), None, port)
        assert caught.value.denied
        floor = Policy(rules=(DENIED, Rule(host="mirror.example", ports=(port,), private=True)))
        with pytest.raises(Refused, match="rule 1 of the operator's floor"):
            await _dial((LOOPBACK,), floor, port)
