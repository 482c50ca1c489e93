"""Promises about the repository itself: its settings are strict, its pages are complete."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import AgentKernelError, all_error_types

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".git", ".venv", ".build", "_agentd", "dist", "node_modules", "__pycache__"}

# What must not get into any file; each with the reason it is looked for.
FORBIDDEN = {
    "a merge that was not finished": r"^(<{7}|>{7}) ",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "an access token": r"\b(gh[pousr]_[A-Za-z0-9]{30,}|AKIA[A-Z0-9]{16})\b",
    "a password in an address": r"https?://[^/\s:@{}$]+:[^/\s:@{}$]{8,}@",
    "a reminder with no issue behind it": r"\b(FIXME|XXX)\b",
}


def settings() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as handle:
        return tomllib.load(handle)


def text_files() -> list[Path]:
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED and not name.endswith("_cache")
        )
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file():
                continue
            with path.open("rb") as handle:
                if b"\0" not in handle.read(4096):
                    found.append(path)
    return found


def test_warnings_are_errors_and_no_test_may_hang(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("filterwarnings")[0] == "error"
    assert float(pytestconfig.getini("timeout")) <= 60
    assert pytestconfig.pluginmanager.hasplugin("timeout")
    assert pytestconfig.getini("xfail_strict")
    options = settings()["tool"]["pytest"]["ini_options"]["addopts"]
    assert {"--strict-markers", "--strict-config"} <= set(options)


def test_types_are_checked_strictly_everywhere() -> None:
    mypy = settings()["tool"]["mypy"]
    assert mypy["strict"] is True
    assert {"src", "tests", "tools"} <= set(mypy["files"])


def documented_errors() -> dict[str, tuple[int, bool]]:
    """Code, status and retryability from the table of the errors page."""
    page = (ROOT / "docs/reference/errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `\w+` \| (\d+) \| (yes|no) \|", page, re.MULTILINE)
    return {code: (int(status), retry == "yes") for code, status, retry in rows}


def test_every_error_is_documented_and_nothing_else() -> None:
    ours = [kind for kind in all_error_types() if kind.__module__ == AgentKernelError.__module__]
    assert documented_errors() == {kind.code: (kind.status, kind.retryable) for kind in ours}


def test_error_codes_are_unique() -> None:
    codes = [kind.code for kind in all_error_types()]
    assert len(codes) == len(set(codes))


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs/dependencies.md").read_text()
    project = settings()
    wanted: list[Any] = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for group in (
        *project["dependency-groups"].values(),
        *project["project"]["optional-dependencies"].values(),
    ):
        wanted += group
    names = {re.split(r"[^\w.-]", entry)[0] for entry in wanted if isinstance(entry, str)}
    missing = {name for name in names if f"| `{name}` |" not in page}
    assert not missing, f"docs/dependencies.md does not say why: {missing}"


def test_no_file_holds_what_does_not_belong() -> None:
    found = []
    for path in text_files():
        if path == Path(__file__).resolve():
            continue
        text = path.read_text(errors="replace")
        for what, pattern in FORBIDDEN.items():
            found += [
                f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {what}"
                for match in re.finditer(pattern, text, re.MULTILINE)
            ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["agentkernel", "test", ".ci/run"])
def test_entry_scripts_can_be_run_and_parse(name: str) -> None:
    path = ROOT / name
    assert os.access(path, os.X_OK)
    shell = path.read_text().splitlines()[0].removeprefix("#!").split()[-1]
    subprocess.run([shell, "-n", str(path)], check=True, timeout=10)
