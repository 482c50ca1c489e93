"""Which sandbox is an editor's, and that no two have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agentkernel.acp.places import Known, places_for, take


def found(state: Path, purpose: str = "p") -> list[str]:
    places = list(places_for(purpose, str(state)))
    for place in places:
        place.release()
    return [place.sandbox for place in places]


def test_found_by_purpose_the_oldest_first(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    for name, purpose, made in (("b", "p", 2.0), ("a", "p", 3.0), ("c", "p", 1.0), ("d", "q", 0.0)):
        place = take(name, str(tmp_path))
        assert place is not None and place.known is None
        place.write(Known(purpose, f"s-{name}", made))
        place.write(Known(purpose, f"s-{name}2", made))
        place.release()
    assert found(tmp_path) == ["c", "b", "a"]
    (first, *others) = places_for("p", str(tmp_path))
    assert first.known == Known("p", "s-c2", 1.0)
    # Those that are held are nobody else's.
    assert found(tmp_path) == [] and found(tmp_path, "q") == ["d"]
    assert take("c", str(tmp_path)) is None
    first.forget()
    for place in others:
        place.release()
    assert found(tmp_path) == ["b", "a"]


def test_a_holder_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, os; from agentkernel.acp.places import take\n"
        "assert take('x', sys.argv[1]) is not None; print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ},
    )
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    assert take("x", str(tmp_path)) is None
    holder.kill()
    holder.wait()
    place = take("x", str(tmp_path))
    assert place is not None
    place.release()
    holder.stdin.close()
    holder.stdout.close()


def test_files_that_are_something_else(tmp_path: Path) -> None:
    place = take("x", str(tmp_path))
    assert place is not None
    place.write(Known("p", "s", 1.0))
    place.release()
    directory = tmp_path / "acp"
    (directory / "junk.json").write_text("{")
    (directory / "none").write_text("")
    (directory / "link.json").symlink_to(directory / "x.json")
    assert directory.stat().st_mode & 0o077 == 0
    assert found(tmp_path) == ["x"]
