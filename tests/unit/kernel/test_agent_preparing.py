"""What a sandbox gets so that an agent can run in it: reach, login, limits, kits; no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from agentkernel.agents.definition import AgentDefinition
from agentkernel.agents.reading import Definitions
from agentkernel.backends.base import VolumeMount
from agentkernel.errors import ConflictError, InvalidInputError, NotFoundError
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.agents.logins import Logins, LoginUse
from agentkernel.kernel.agents.model import AgentRequest
from agentkernel.kernel.agents.preparing import Equipped, equip, seconds_of, with_reach
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.request import NetworkRequest, PhaseRequest, expand_network

BINDING = "MODEL_KEY@model.example.org"


def definition(**fields: Any) -> AgentDefinition:
    given: dict[str, Any] = {
        "name": "one",
        "title": "One",
        "version": "1",
        "command": {"headless": ["one", "{task}"]},
        "login": {"keys": [{"secret": "MODEL_KEY", "binding": "model.example.org"}]},
        "network": {"presets": ["anthropic"]},
    }
    return msgspec.convert({**given, **fields}, AgentDefinition)


class Known:
    """Definitions, kits and logins of these tests."""

    def __init__(self, known: AgentDefinition, *secrets: str) -> None:
        self._known = known
        self._secrets = secrets
        self.asked: list[str] = []

    def get(self, name: str) -> AgentDefinition:
        if name != self._known.name:
            raise NotFoundError(f"no agent {name}")
        return self._known

    async def ready(self, known: AgentDefinition, **_: Any) -> VolumeMount:
        return VolumeMount(id="k" * 20, name="kit", path=f"/opt/agentkernel/{known.name}")

    async def use(self, known: AgentDefinition, *, owner: str) -> LoginUse:
        self.asked.append(owner)
        return LoginUse(self._secrets)


async def equipped(known: Known, **fields: Any) -> Equipped:
    return await equip(
        SandboxSpec(agents=["one"], **fields),
        cast(Definitions, known),
        cast(Kits, known),
        cast(Logins, known),
        owner="token:ci",
    )


async def test_the_login_of_whoever_s_secrets_it_may_use() -> None:
    known = Known(definition(), BINDING)
    spec, mounts = await equipped(known)
    assert (spec.secrets, mounts, known.asked) == ([BINDING], [], ["token:ci"])
    # One that the caller has bound in another way stays as it is.
    spec, _ = await equipped(known, secrets=["MODEL_KEY@proxy.example.org"])
    assert spec.secrets == ["MODEL_KEY@proxy.example.org"]


async def test_without_a_login_it_is_said_how_to_get_one() -> None:
    with pytest.raises(ConflictError, match="no login with One") as caught:
        await equipped(Known(definition()))
    assert "agentkernel agent login one" in str(caught.value.hint)
    for fields in (
        {"agent_logins": False},
        {"secrets": ["OTHER@other.example.org"]},
        {"env": {"MODEL_KEY": "a key of the caller's own"}},
        {"network": NetworkRequest(allow=["127.0.0.1:8080"])},
    ):
        spec, _ = await equipped(Known(definition()), **fields)
        assert BINDING not in spec.secrets
    # One that needs none is asked for none.
    await equipped(Known(definition(login={})))


async def test_a_login_that_is_not_wanted_is_not_even_asked_for() -> None:
    known = Known(definition(), BINDING)
    spec, _ = await equipped(known, agent_logins=False)
    assert (spec.secrets, known.asked) == ([], [])


async def test_a_kit_for_what_is_installed() -> None:
    steps = {"steps": [["true"]]}
    _, mounts = await equipped(Known(definition(install=steps), BINDING))
    assert [mount.path for mount in mounts] == ["/opt/agentkernel/one"]
    with pytest.raises(NotFoundError):
        await equip(
            SandboxSpec(agents=["two"]),
            *(cast(Any, Known(definition())) for _ in range(3)),
            owner="local",
        )


async def test_limits_are_on_unless_the_caller_says_others() -> None:
    known = Known(definition(memory="3G"), BINDING)
    spec, _ = await equipped(known)
    assert (spec.memory_bytes, spec.best_effort) == (3 << 30, True)
    spec, _ = await equipped(known, memory_bytes=1 << 30)
    assert (spec.memory_bytes, spec.best_effort) == (1 << 30, False)
    with pytest.raises(InvalidInputError, match="memory of the agent one"):
        await equipped(Known(definition(memory="much"), BINDING))


def hosts(request: NetworkRequest, phase: str = "default") -> set[str]:
    setting = expand_network(request, "permissive", ())
    return {rule.host for rule in setting.phases[phase].rules if rule.action == "allow"}


def test_it_reaches_its_model_and_nothing_else() -> None:
    """Whatever the profile would allow."""
    request = with_reach(None, definition(), [BINDING])
    assert hosts(request) == hosts(NetworkRequest(presets=["anthropic"])) | {"model.example.org"}
    assert "registries" in (request.phases["setup"].presets or [])
    assert "registries" not in (request.presets or [])


def test_what_the_caller_says_is_added_or_denied() -> None:
    asked = NetworkRequest(presets=["github"], allow=["a.example.org"], deny=["b.example.org"])
    request = with_reach(asked, definition(), [])
    assert request.presets == ["github", "anthropic"]
    assert (request.allow, request.deny) == (["a.example.org"], ["b.example.org"])
    asked = NetworkRequest(phases={"default": PhaseRequest(allow=["a.example.org"], presets=[])})
    request = with_reach(asked, definition(), [])
    assert "a.example.org" in hosts(request) and "default" not in request.phases


def test_none_stays_none() -> None:
    request = with_reach(NetworkRequest(presets=["none"]), definition(), [BINDING])
    assert hosts(request) == set()


def test_time_is_always_bounded() -> None:
    asked = AgentRequest(agent="one", task="x")
    assert seconds_of(asked, definition()) == 7200
    assert seconds_of(asked, definition(timeout="30m")) == 1800
    longer = msgspec.structs.replace(asked, timeout_seconds=5.0)
    assert seconds_of(longer, definition(timeout="30m")) == 5
    with pytest.raises(InvalidInputError, match="timeout of the agent one"):
        seconds_of(asked, definition(timeout="soon"))


def test_an_own_definition_is_read(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(
        'name = "one"\ntitle = "One"\nversion = "1"\n[command]\nheadless = ["one", "{task}"]\n'
    )
    assert Definitions(tmp_path).get("one").title == "One"
