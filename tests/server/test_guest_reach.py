"""A guest can never reach the API, by any of the daemon's doors, whatever engine holds it.

The same program runs outside, where each way leads to the daemon: that is the control.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agentkernel.backends.registry import backend_names

from .network_process import NetworkDaemon

MUST_WORK = frozenset(filter(None, os.environ.get("MUST_WORK", "").split(",")))

# Prints which ways lead to somebody who speaks HTTP, or to anybody at all.
PROGRAM = """
import glob, json, os, socket, sys
paths, addresses, port, abstract, root = json.loads(sys.argv[1])

def spoken(connection):
    connection.sendall(b"GET /v1/version HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    return connection.recv(100).decode("latin-1")[:8]

found = {}
for path in paths:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    try:
        connection.connect(path)
        found["socket"] = spoken(connection)
    except OSError:
        pass
    connection.close()
    if os.path.lexists(path):
        found["path"] = path
for address in addresses:
    try:
        with socket.create_connection((address, port), timeout=5) as connection:
            found["tcp " + address] = spoken(connection)
    except OSError:
        pass
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(5)
try:
    connection.connect(chr(0) + abstract)
    found["abstract"] = "HTTP/1.1"
except OSError:
    pass
connection.close()
for table in ("unix", "tcp", "tcp6"):
    try:
        with open("/proc/net/" + table) as lines:
            text = lines.read()
    except OSError:
        continue
    if abstract in text or "api.sock" in text or ":%04X" % port in text:
        found["seen in /proc/net/" + table] = "HTTP/1.1"
for folder, folders, names in os.walk(root):
    if folder.count("/") > 5 or folder.startswith(("/proc", "/sys", "/usr")):
        folders.clear()
    if "api.sock" in names:
        found["below " + root] = folder
for entry in glob.glob("/proc/[0-9]*/root/") if root == "/" else ():
    for path in paths:
        if os.path.lexists(entry + path):
            found["by " + entry] = path
print(json.dumps(found))
"""


@pytest.fixture
def abstract() -> Iterator[str]:
    """A listener without a path, as a helper of the daemon could have one."""
    name = f"ak-reach-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(8)
        yield name


def own_addresses() -> list[str]:
    """Loopback, and what this machine is called by on its networks."""
    found = ["127.0.0.1", "::1", "localhost", "127.0.0.2", "0.0.0.0"]
    for family, _, _, _, address in socket.getaddrinfo(socket.gethostname(), None):
        if family in (socket.AF_INET, socket.AF_INET6):
            found.append(str(address[0]))
    return sorted(set(found))


def question(daemon: NetworkDaemon, abstract: str, root: str) -> str:
    paths = [str(daemon.state_dir / "api.sock"), "/proc/1/root/api.sock"]
    return json.dumps([paths, own_addresses(), daemon.port, abstract, root])


def test_control_outside_every_way_leads_there(
    network_daemon: NetworkDaemon, abstract: str
) -> None:
    asked = question(network_daemon, abstract, str(network_daemon.state_dir))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, asked], capture_output=True, timeout=50, check=True
    )
    found = json.loads(done.stdout)
    # A socket's address holds 107 bytes, and a test's directory may be longer than that.
    reachable = len(str(network_daemon.state_dir / "api.sock")) <= 107
    assert (found.get("socket") == "HTTP/1.1") == reachable
    assert found["tcp 127.0.0.1"] == "HTTP/1.1" and found["abstract"] == "HTTP/1.1"
    assert "path" in found and f"below {network_daemon.state_dir}" in found
    assert "seen in /proc/net/unix" in found and "seen in /proc/net/tcp" in found


@pytest.mark.parametrize("user", ["root", "user"])
@pytest.mark.parametrize("backend", backend_names())
def test_inside_no_way_leads_there(
    network_daemon: NetworkDaemon, abstract: str, backend: str, user: str
) -> None:
    daemon = network_daemon
    wanted = {"backend": backend, "ephemeral": True, "user": user}
    status, made = daemon.request("POST", "/v1/sandboxes", wanted)
    if status == 422:
        if backend in MUST_WORK:
            pytest.fail(f"{backend} must work here: {made['detail']}")
        pytest.skip(f"{backend}: {made['detail']}")
    assert status == 201, made
    try:
        path = f"/v1/sandboxes/{made['id']}/exec"
        asked = question(daemon, abstract, "/")
        status, result = daemon.request(
            "POST", path, {"argv": ["python3", "-c", PROGRAM, asked], "timeout_seconds": 40}
        )
        assert (status, result["exit_code"]) == (200, 0), result
        assert json.loads(result["stdout"]) == {}
    finally:
        daemon.request("DELETE", f"/v1/sandboxes/{made['id']}")
