"""What is said at the end of an agent's session. All of it comes from inside."""

from __future__ import annotations

from typing import Any

from agentkernel.cli.agent_end import summary_lines

SESSION = {
    "id": "s1", "agent": "claude", "version": "1.0", "error": None,
    "sandbox": "box1", "sandbox_name": "claude-1", "project": "/p",
}  # fmt: skip


def summary(**more: Any) -> dict[str, Any]:
    return {
        "session": SESSION, "commands": [], "hosts": [], "denied": [], "changed": [],
        "held_back": {}, "usage": {}, "seconds": 65.0, "complete": True, **more,
    }  # fmt: skip


def change(path: str, **more: Any) -> dict[str, Any]:
    return {
        "path": path, "kind": "modified", "added_lines": 2, "removed_lines": 1, "held_back": None,
        "note": None, **more,
    }  # fmt: skip


def told(*changes: dict[str, Any], **more: Any) -> str:
    return "\n".join(summary_lines(summary(**more), {"changes": list(changes)}))


def test_nothing_changed() -> None:
    text = told()
    assert "changed   nothing" in text and "claude 1.0, 65s, session s1" in text


def test_gits_own_files_are_one_thing() -> None:
    assert "changed   nothing" in (text := told(change(".git/index"), change(".git/opencode")))
    assert "held back" not in text
    text = told(change(".git/objects/ab/cd"), change(".git/refs/heads/main"), change("a.py"))
    assert "1 file, +2 -1 lines" in text and "commits made inside" in text


def test_all_that_is_known_is_told() -> None:
    text = told(
        change("a.py"),
        change(".envrc", kind="added", held_back="your shell runs it"),
        change("image.png", added_lines=None, removed_lines=None),
        change("package.json", added_lines=0, removed_lines=0, note="the next install runs it"),
        commands=["make test"] * 12,
        hosts=[{"host": "api.example.org", "port": 443, "times": 3}],
        denied=[
            {"host": "evil.example", "port": 443, "times": 1},
            {"host": "evil.example", "port": 0, "times": 1},
            {"host": "evil.example", "port": 22, "times": 1},
        ],
        usage={"cost_usd": 0.1234, "input_tokens": 10, "output_tokens": 5},
        complete=False,
    )
    for part in (
        "4 files, +4 -2 lines", "M  a.py  +2 -1", "A! .envrc", "M  image.png\n",
        "look at   package.json: the next install", "ran       make test",
        "held back .envrc: your shell runs it", "and 2 more",
        "reached   api.example.org\n", "denied    evil.example, 2 times\n",
        "denied    evil.example:22, once\n",
        "--allow evil.example,", "agentkernel network allow claude-1 evil.example`",
        "$0.1234", "10 + 5 tokens", "more than is listed",
    ):  # fmt: skip
        assert part in text, part


def test_it_is_short_and_can_do_nothing_to_a_terminal() -> None:
    hostile = "x\x1b]52;c;aGk=\x07\n\r" + "y" * 5000
    text = told(
        *[change(hostile) for _ in range(500)],
        commands=[hostile] * 500,
        denied=[{"host": hostile, "port": 1, "times": 1}] * 500,
    )
    lines = text.split("\n")
    assert len(lines) < 70 and all(len(line) < 400 and line.isprintable() for line in lines)
