"""Machines that forbid what a sandbox needs: the refusal names the cause and what mends it.

Each case is made for real in a private namespace or under a real filter, except the two that this
kernel can't show (AppArmor's rule, an old kernel): those replace what the machine says of itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.backends.local import diagnose
from agentkernel.backends.local.launcher import LaunchFailure
from agentkernel.errors import HostError

from .conftest import COMMAND

UNSHARE = shutil.which("unshare") or "unshare"
CHROOT = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or "chroot"


# The daemon that a run starts is behind the prefix as well, and has to end with it.
_RUN_AND_STOP = """
import subprocess, sys
words = [sys.executable, "-m", "agentkernel"]
subprocess.run([*words, "run", "--json", *sys.argv[1:], "--", "true"], timeout=40)
subprocess.run([*words, "daemon", "stop"], timeout=40, stdout=subprocess.DEVNULL)
"""


def refusal(
    prefix: list[str], state: Path, *options: str, must_fail: bool = True
) -> dict[str, str]:
    """Runs `agentkernel run --json … -- true` behind `prefix` and returns its error."""
    environment = {**os.environ, "AGENTKERNEL_STATE_DIR": str(state)}
    done = subprocess.run(
        [*prefix, sys.executable, "-c", _RUN_AND_STOP, *options],
        capture_output=True, timeout=50, check=False, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    body = json.loads(done.stdout)
    assert ("error" in body) is must_fail, (done.stdout, done.stderr)
    error: dict[str, str] = body.get("error", {})
    return error


def in_namespace(script: str) -> list[str]:
    """A prefix: namespaces of our own, then `script`, then the command."""
    if "mount " in script and not shutil.which("mount"):
        pytest.skip("mount is not installed")
    own = [UNSHARE, "--user", "--map-root-user", "--mount"]
    return [*own, "sh", "-ec", script + '; exec "$@"', "sh"]


def test_control_nested_user_namespace_works(tmp_path: Path) -> None:
    """Root of a user namespace is a normal user to us: a sandbox with one id."""
    refusal(in_namespace("true"), tmp_path, must_fail=False)


@pytest.mark.parametrize("disk", [(), ("--disk", "unlimited")], ids=["default", "on disk"])
def test_user_namespaces_switched_off(tmp_path: Path, disk: tuple[str, ...]) -> None:
    error = refusal(in_namespace("echo 0 > /proc/sys/user/max_user_namespaces"), tmp_path, *disk)
    assert error["code"] == "host_forbids"
    assert "user.max_user_namespaces=0" in error["message"]
    assert "sysctl -w user.max_user_namespaces" in error["hint"]
    assert os.listdir(tmp_path / "runs") == []


def test_switched_off_while_files_are_left(tmp_path: Path) -> None:
    """Files of a killed run can't be removed without a namespace: the cause is the same."""
    left = tmp_path / "runs" / ("a" * 20)
    (left / "upper" / "0").mkdir(parents=True)
    (left / "lock").touch()
    (tmp_path / "runs").chmod(0o700)
    error = refusal(in_namespace("echo 0 > /proc/sys/user/max_user_namespaces"), tmp_path)
    assert error["code"] == "host_forbids"
    assert "user.max_user_namespaces=0" in error["message"]
    refusal(in_namespace("true"), tmp_path, must_fail=False)
    assert os.listdir(tmp_path / "runs") == [], "control: with namespaces it is removed"


def test_covered_proc(tmp_path: Path) -> None:
    error = refusal(in_namespace("mount --bind /dev/null /proc/uptime"), tmp_path)
    assert "/proc are covered" in error["message"]
    assert "systempaths=unconfined" in error["hint"]


def test_chroot(tmp_path: Path) -> None:
    """A bind of "/" entered by chroot: everything is there, and still the kernel refuses."""
    script = f"mount --rbind / {tmp_path}/root"
    (tmp_path / "root").mkdir()
    prefix = [*in_namespace(script), CHROOT, str(tmp_path / "root")]
    error = refusal(prefix, tmp_path / "state")
    assert "chroot" in error["message"]


def test_state_on_overlay(tmp_path: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    script = f"mount -t overlay overlay -o userxattr,{options} {tmp_path}/merged"
    state = tmp_path / "merged" / "state"
    error = refusal(in_namespace(script), state, "--disk", "unlimited")
    assert "is on overlay" in error["message"]
    assert "AGENTKERNEL_STATE_DIR" in error["hint"]


def unfit(prefix: list[str], state: Path) -> dict[str, dict[str, str]]:
    """What `doctor` finds behind `prefix`, which must be something that fails."""
    done = subprocess.run(
        [*prefix, *COMMAND, "doctor", "--json"],
        capture_output=True, timeout=50, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
    )  # fmt: skip
    assert done.returncode == 1, (done.stdout, done.stderr)
    return {entry["what"]: entry for entry in json.loads(done.stdout)["findings"]}


def test_doctor_names_the_cause(tmp_path: Path) -> None:
    found = unfit(in_namespace("echo 0 > /proc/sys/user/max_user_namespaces"), tmp_path)
    assert found["native backend"]["state"] == "fail"
    assert "user.max_user_namespaces=0" in found["native backend"]["detail"]
    assert "sysctl -w user.max_user_namespaces" in found["native backend"]["hint"]
    assert "not known" in found["isolation"]["detail"] and "seccomp" not in found


def test_doctor_tells_the_state_directory_from_the_rest(tmp_path: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    script = f"mount -t overlay overlay -o userxattr,{options} {tmp_path}/merged"
    found = unfit(in_namespace(script), tmp_path / "merged" / "state")
    assert found["native backend"]["state"] == found["seccomp"]["state"] == "ok"
    assert found["files of sandboxes"]["state"] == "fail"
    assert "is on overlay" in found["files of sandboxes"]["detail"]
    assert "AGENTKERNEL_STATE_DIR" in found["files of sandboxes"]["hint"]


def test_seccomp_of_a_container(tmp_path: Path) -> None:
    """Our own moderate filter around the command line itself, as a container's would be."""
    script = (
        "import ctypes, os, struct, sys\n"
        "from agentkernel.security.seccomp.compiler import compile_profile\n"
        "code = compile_profile('moderate', ())\n"
        "buffer = ctypes.create_string_buffer(code)\n"
        "program = struct.pack('HxxxxxxP', len(code) // 8, ctypes.addressof(buffer))\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.prctl(38, 1, 0, 0, 0) == 0\n"
        "assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0, ctypes.get_errno()\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    error = refusal([sys.executable, "-c", script], tmp_path)
    assert "seccomp" in error["message"]
    assert "seccomp=unconfined" in error["hint"]


# A kernel without nf_tables, to a launcher: sockets of netfilter are not there. As root of a user
# namespace, so that the filter needs no no_new_privs.
_NO_NETFILTER = """
import ctypes, os, struct, sys
SOCKET = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
code = b"".join(struct.pack("HBBI", *words) for words in (
    (0x20, 0, 0, 0), (0x15, 0, 5, SOCKET),
    (0x20, 0, 0, 16), (0x15, 0, 3, 16),
    (0x20, 0, 0, 32), (0x15, 0, 1, 12),
    (0x06, 0, 0, 0x50000 | 93), (0x06, 0, 0, 0x7FFF0000),
))
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
"""


def without_netfilter() -> list[str]:
    return [*in_namespace("true"), sys.executable, "-c", _NO_NETFILTER]


@pytest.mark.parametrize(
    "asked", [("--network", "registries"), ("--allow", "example.org")], ids=["network", "allow"]
)
def test_a_network_that_was_asked_for(tmp_path: Path, asked: tuple[str, ...]) -> None:
    """Refused, with what is missing: never open, never quietly without."""
    error = refusal(without_netfilter(), tmp_path, *asked)
    assert error["code"] == "network_unavailable"
    assert "nf_tables" in error["message"]
    assert "modprobe" in error["hint"] and "--network none" in error["hint"]


_CREATE_AND_SHOW = """
import json, subprocess, sys
def agentkernel(*words):
    return subprocess.run([sys.executable, "-m", "agentkernel", *words], timeout=40,
                          capture_output=True, text=True).stdout
said = [json.loads(agentkernel(*words, "--json")) for words in (
    ("sandbox", "create", "plain"), ("sandbox", "info", "plain"), ("network", "show", "plain"),
    ("network", "allow", "plain", "example.org"), ("network", "show", "plain"), ("info",),
)]
agentkernel("sandbox", "remove", "plain")
agentkernel("daemon", "stop")
print(json.dumps(said))
"""


def test_the_network_of_a_profile(tmp_path: Path) -> None:
    """Nobody asked for it: the sandbox is made without, and says so wherever it is looked at. One
    that is asked for later is refused, and leaves it as it was."""
    done = subprocess.run(
        [*without_netfilter(), sys.executable, "-c", _CREATE_AND_SHOW],
        capture_output=True, timeout=55, check=False, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(tmp_path)},
    )  # fmt: skip
    made, seen, shown, refused, still, info = json.loads(done.stdout)
    [notice] = [text for text in seen["notices"] if "network" in text]
    assert made["name"] == "plain" and made["state"] == "running"
    assert notice.startswith("the network of its profile is not available: ")
    assert "nf_tables" in notice
    [line] = [line for line in seen["effective"] if line["what"] == "network"]
    assert line["value"] == "none: loopback only"
    assert (shown["gateway"], shown["phases"]) == ("none", {})
    assert refused["error"]["code"] == "network_unavailable"
    assert still == shown
    [line] = [line for line in info["effective"] if line["what"] == "network"]
    assert line["enforced_by"].startswith("not available: ")


def test_doctor_tells_of_a_missing_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [*without_netfilter(), *COMMAND, "doctor", "--json"],
        capture_output=True, timeout=55, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(tmp_path)},
    )  # fmt: skip
    found = {entry["what"]: entry for entry in json.loads(done.stdout)["findings"]}
    assert found["native backend"]["state"] == "ok"
    assert (done.returncode, found["network"]["state"]) == (0, "warn"), "fit without a network"
    assert "nf_tables" in found["network"]["detail"] and "modprobe" in found["network"]["hint"]


def test_id_ranges_can_not_be_kept(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root hands out id ranges")
    if not shutil.which("mount"):
        pytest.skip("mount is not installed")
    prefix = [UNSHARE, "--mount", "sh", "-ec",
              "mkdir -p /var/lib/agentkernel; mount -t tmpfs -o ro none /var/lib/agentkernel; "
              'exec "$@"', "sh"]  # fmt: skip
    error = refusal(prefix, tmp_path)
    assert error["code"] == "host_forbids"
    assert "id range" in error["message"]


def test_state_directory_of_another(tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("everything belongs to root")
    error = refusal([], Path("/usr/lib"))
    assert "belongs to another user" in error["message"]


@pytest.mark.parametrize(
    ("sysctl", "value", "word"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
        ("kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone"),
    ],
)
def test_simulated_sysctls(
    monkeypatch: pytest.MonkeyPatch, sysctl: str, value: str, word: str
) -> None:
    """Simulated: this kernel has neither sysctl."""
    monkeypatch.setattr(diagnose, "_sysctl", lambda name: value if name == sysctl else "")
    error = diagnose.explain(LaunchFailure("map-single", 1, ""), as_root=False, upper=None)
    assert isinstance(error, HostError)
    assert word in error.message
    assert error.hint and error.hint.startswith("sudo sysctl -w")


def test_simulated_old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: the floor is stated, not found by luck."""
    monkeypatch.setattr(diagnose, "kernel_version", lambda: (5, 4))
    error = diagnose.explain(LaunchFailure("source-attributes", 38, ""), as_root=False, upper=None)
    assert "too old" in error.message and "5.12" in error.message
