"""Definitions: ours all hold, and what a user's file may say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agentkernel.agents.reach import reach_of
from agentkernel.agents.reading import BUILT_IN, MAX_FILE, Definitions, check_definition
from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.network.policy.presets import PRESETS
from agentkernel.network.secrets.bindings import parse_binding
from agentkernel.quantities import parse_duration, parse_size

OURS = Definitions(Path("/nonexistent"))
MINE = """
name = "mine"
title = "Mine"
version = "1"
[command]
acp = ["mine", "--acp"]
"""


def _own(tmp_path: Path, text: str, name: str = "mine") -> Definitions:
    (tmp_path / f"{name}.toml").write_text(text)
    return Definitions(tmp_path)


@pytest.mark.parametrize("name", OURS.names())
def test_ours(name: str) -> None:
    definition = OURS.get(name)
    assert definition.home.startswith("https://")
    assert set(definition.network.presets + definition.network.setup) <= set(PRESETS)
    assert parse_size(definition.memory) >= 1 << 30
    assert parse_duration(definition.timeout) > 0
    for key in definition.login.keys:
        binding = f"{key.secret}@{key.binding}" if key.binding else key.secret
        assert parse_binding(binding).hosts
        assert reach_of(definition, [binding]).allow
    assert definition.tested or definition.notes


def test_there_are_all_of_them() -> None:
    assert OURS.names() == sorted(
        ("aider", "amp", "claude", "codex", "cursor", "gemini", "goose", "opencode")
    )
    tested = [name for name in OURS.names() if OURS.get(name).tested]
    assert tested == ["aider", "claude", "codex", "gemini", "opencode"]


@pytest.mark.parametrize("name", OURS.names())
def test_no_state_that_is_kept_has_a_login_in_it(name: str) -> None:
    definition = OURS.get(name)
    oauth = definition.login.oauth
    credentials = {oauth.file} if oauth else set()
    credentials |= {file.path for file in definition.files if "{secret:" in file.content}
    left_out = tuple(path + "/" for path in definition.state.exclude)
    for file in credentials:
        kept = [path for path in definition.state.keep if f"{file}/".startswith(f"{path}/")]
        assert not kept or f"{file}/".startswith(left_out)


def test_a_login_in_kept_state_is_refused() -> None:
    codex = OURS.get("codex")
    everything = msgspec.structs.replace(
        codex, state=msgspec.structs.replace(codex.state, keep=["~/.codex"], exclude=[])
    )
    with pytest.raises(InvalidInputError, match=r"auth\.json"):
        check_definition(everything)
    spared = msgspec.structs.replace(
        everything, state=msgspec.structs.replace(codex.state, keep=["~/.codex"])
    )
    check_definition(spared)


def test_the_users_own(tmp_path: Path) -> None:
    definitions = _own(tmp_path, MINE)
    assert "mine" in definitions.names() and definitions.own("mine")
    assert definitions.get("mine").command.acp == ["mine", "--acp"]
    assert not definitions.get("mine").tested
    assert not definitions.own("claude")


def test_one_that_extends_says_only_what_differs(tmp_path: Path) -> None:
    text = 'extends = "claude"\nversion = "2.0.0"\n[environment]\nIS_SANDBOX = "0"\n'
    definitions = _own(tmp_path, text, "claude")
    mine, ours = definitions.get("claude"), OURS.get("claude")
    assert mine.version == "2.0.0" and mine.environment["IS_SANDBOX"] == "0"
    assert len(mine.environment) == len(ours.environment)
    assert mine.install == ours.install and mine.login == ours.login
    other = _own(tmp_path, 'extends = "claude"\ntitle = "Other"\n', "other").get("other")
    assert other.name == "other" and other.version == ours.version


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('extends = "../claude"', "extends"),
        ('extends = "mine"', "extends"),
        ("extends = 1", "extends"),
        ('name = "other"\ntitle="x"\nversion="1"\ncommand={acp=["x"]}', "name is other"),
        (MINE + 'headles = ["x"]', "headles"),
        (MINE.replace("--acp", "{tsak}"), "{tsak}"),
        (MINE.replace("--acp", "{secret}"), "{secret}"),
        (MINE.replace("--acp", "{task}"), "headless"),
        (MINE.replace("--acp", "{model}"), "command.model"),
        (MINE.replace("--acp", "{session}"), "resume"),
        (MINE + 'model = ["-m"]', "{model}"),
        (MINE.replace('acp = ["mine", "--acp"]', ""), "interactive"),
        (MINE + '[mcp]\nformat = "claude"', "mcp.file"),
        ("title = [", "Invalid"),
        ("a = 1\n" + "#" * MAX_FILE, "KiB"),
        ("x = " + "[" * 5000, "mine.toml"),
        (b"\xff".decode("latin-1"), "mine.toml"),
    ],
)
def test_errors_name_the_file_and_what_is_wrong(tmp_path: Path, change: str, said: str) -> None:
    definitions = _own(tmp_path, change)
    with pytest.raises(InvalidInputError) as caught:
        definitions.get("mine")
    assert str(tmp_path / "mine.toml") in caught.value.message
    assert said in caught.value.message


def test_names_are_never_paths(tmp_path: Path) -> None:
    (tmp_path / "Bad Name.toml").write_text(MINE)
    definitions = _own(tmp_path, MINE)
    assert "Bad Name" not in definitions.names()
    for name in ("../definitions/claude", str(BUILT_IN / "claude"), "Bad Name", ""):
        with pytest.raises(NotFoundError, match="no agent"):
            definitions.get(name)
