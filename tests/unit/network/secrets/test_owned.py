"""All secrets of its owner are kept from leaving a sandbox, whether they are bound to it or not."""

from __future__ import annotations

from pathlib import Path

from agentkernel.network.gateway.subjects import Sandbox, World
from agentkernel.network.policy.model import NetworkSetting, SecretBinding


def test_what_a_sandbox_s_flows_look_for(tmp_path: Path) -> None:
    world = World(
        values={
            "local/BOUND": b"1",
            "local/FREE": b"2",
            "token:ci/OTHER": b"3",
            "local2/OTHER": b"4",
            "machine/pip:index": b"5",
        }
    )
    bindings = tuple(
        SecretBinding(reference=reference, env="", placeholder="x" * 16, hosts=("a.test",))
        for reference in ("local/BOUND", "machine/pip:index", "local/REMOVED")
    )
    sandbox = Sandbox(world, "a" * 20, NetworkSetting(secrets=bindings), str(tmp_path / "names"))
    bound = {"local/BOUND": b"1", "machine/pip:index": b"5"}
    assert sandbox.secrets == bound, "before its owner is known"
    sandbox.owner = "local"
    assert sandbox.secrets == {**bound, "local/FREE": b"2"}
    world.values = {}
    assert sandbox.secrets == {}, "what is removed is gone at once"
