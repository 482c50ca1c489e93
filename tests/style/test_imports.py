"""Imports point downwards: a package may use itself and what stands below it, nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "agentkernel"
MAX_LINES = 600

# Bottom to top. Packages on one line are siblings, which may not import one another.
# ARCHITECTURE.md shows the same table to readers.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "faults"),
    ("documents", "ids", "outcomes", "places", "quantities", "texts"),
    ("space",),
    ("detection", "trees"),
    ("security", "audit"),
    ("config",),
    ("guest",),
    ("network",),
    ("agents", "workspaces"),
    ("images",),
    ("backends",),
    ("kernel",),
    ("conformance",),
    ("server",),
    ("client",),
    ("acp", "mcp", "gateways", "web"),
    ("cli",),
)
# What must run where nothing else is installed, or start fast, may use only this of what is below.
ONLY = {"client": {"errors", "ids", "outcomes", "places", "trees", "config"}}
# The package's own doors stand above everything: they only re-export or start something.
DOORS = ("__init__", "__main__")

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_id(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    """The package directly below agentkernel that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_parts(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of every part of agentkernel that is imported anywhere in the file."""
    parents = ("agentkernel", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = parents[: len(parents) - node.level + 1]
                base = ".".join((*above, base)).rstrip(".")
            if base == "agentkernel":
                names = [f"agentkernel.{alias.name}" for alias in node.names]
            else:
                names = [base]
        else:
            continue
        for name in names:
            pieces = name.split(".")
            if pieces[0] == "agentkernel" and len(pieces) > 1:
                yield node.lineno, pieces[1]


def violations(text: str, path: Path) -> list[str]:
    """What a file with this text would do wrong at this place."""
    own = part_of(path)
    found = []
    for line, other in imported_parts(ast.parse(text), path):
        if own in DOORS or other == own or other.startswith("__"):
            continue
        if other not in LEVEL:
            found.append(f"{path}:{line} imports {other}, which has no place in LAYERS")
        elif LEVEL[other] >= LEVEL[own]:
            found.append(f"{path}:{line} {own} may not import {other}, which is not below it")
        elif other not in ONLY.get(own, LEVEL):
            found.append(f"{path}:{line} {own} may import {sorted(ONLY[own])} only, not {other}")
    return found


def test_every_package_has_a_place() -> None:
    parts = {part_of(path) for path in MODULES} - set(DOORS)
    assert parts <= LEVEL.keys(), f"add to LAYERS and ARCHITECTURE.md: {parts - LEVEL.keys()}"


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_imports_point_downwards(path: Path) -> None:
    assert violations(path.read_text(), path) == []


@pytest.mark.parametrize(
    ("place", "text", "count"),
    [
        ("guest/a.py", "from agentkernel.errors import BuildError", 0),
        ("guest/a.py", "from agentkernel.guest.b import c", 0),
        ("guest/a.py", "from . import b", 0),
        ("guest/a.py", "def f():\n    from agentkernel.kernel import x", 1),
        ("guest/a.py", "from agentkernel import kernel, errors", 1),
        ("guest/a.py", "import agentkernel.cli.main", 1),
        ("guest/a.py", "from ..kernel import x", 1),
        ("guest/deep/a.py", "from ...kernel.spec import x", 1),
        ("guest/a.py", "from agentkernel.nowhere import x", 1),
        ("mcp/a.py", "from agentkernel.web import x", 1),
        ("client/a.py", "from agentkernel.places import x", 0),
        ("client/a.py", "from agentkernel.kernel.state import x", 1),
        ("__main__.py", "from agentkernel.cli.main import main", 0),
    ],
)
def test_the_check_itself(place: str, text: str, count: int) -> None:
    assert len(violations(text, PACKAGE / place)) == count


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
    lines = len(text.splitlines())
    assert lines <= MAX_LINES, f"{path} has {lines} lines: does it still have one job?"
