"""The Secret Service of a desktop, a real one: gnome-keyring on a session bus of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

VALUE = "ghp_k3Jx9QmZt7Vb2NcR5Ld8WfY1"

# Runs on the bus.
PROGRAM = f"""
import os, pathlib
from agentkernel.network.secrets.keyrings import find_keyring
from agentkernel.network.secrets.sealing import SealedFile
from agentkernel.network.secrets.store import Hidden, SecretStore

state = pathlib.Path(os.environ["STATE"])
assert find_keyring() is not None, "no keyring"
assert SecretStore(state).put("local", "TOKEN", Hidden({VALUE.encode()!r})).kept == "keyring"
assert {VALUE.encode()!r} not in SealedFile(state / "secrets.enc").read()
values, missing = SecretStore(state).values()
assert values["local/TOKEN"].reveal() == {VALUE.encode()!r} and not missing
SecretStore(state).put("local", "TOKEN", Hidden(b"another value of it"))
assert SecretStore(state).values()[0]["local/TOKEN"].reveal() == b"another value of it"
SecretStore(state).remove("local", "TOKEN")
assert SecretStore(state).values() == ({{}}, [])
print("worked")
"""


def missing_here() -> str | None:
    for program in ("dbus-run-session", "gnome-keyring-daemon"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if find_spec("keyring") is None:
        return "the extra `keyring` is not installed"
    return None


@pytest.mark.skipif(missing_here() is not None, reason=str(missing_here()))
def test_values_are_in_gnome_keyring(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    for name in ("runtime", "home"):
        (tmp_path / name).mkdir(mode=0o700)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "XDG_RUNTIME_DIR": str(tmp_path / "runtime"),
        "XDG_CONFIG_HOME": str(tmp_path / "home" / ".config"),
        "STATE": str(tmp_path / "state"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    script = 'printf pass | gnome-keyring-daemon --unlock --components=secrets >/dev/null && "$@"'
    done = subprocess.run(
        ["dbus-run-session", "--", "sh", "-c", script, "sh", sys.executable, "-c", PROGRAM],
        env=environment, capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert done.stdout.strip().endswith("worked"), done.stderr
