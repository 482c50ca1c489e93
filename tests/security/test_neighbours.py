"""Two sandboxes of one owner know nothing of each other; nor do they share the host's IPC and keys.

Each kind of thing is made in one place, looked for in another; the control is a second process of
the same place, which finds it.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import start_command
from agentkernel.kernel.runs import Runs
from agentkernel.security.seccomp.syscalls import table

from .controls import box_without
from .probes import MACHINE, Box, end, eventually, outside, start

# Makes one thing of each kind under the name V['name'] and keeps them.
MAKE = """
name, key = V['name'], V['key']
keep = []
def abstract():
    s = socket.socket(socket.AF_UNIX); s.bind('\\0' + name); s.listen(); keep.append(s)
def file(path):
    with open(path, 'w') as f: f.write(name)
libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
made = {
    'abstract socket': attempt(abstract),
    'file in /tmp': attempt(file, '/tmp/' + name),
    'file in /dev/shm': attempt(file, '/dev/shm/' + name),
    'file in /run': attempt(file, '/run/' + name),
    'file in /root': attempt(file, '/root/' + name),
    'shared memory': 'ok' if libc.shmget(key, 4096, 0o1666) >= 0 else 'no',
    'semaphores': 'ok' if libc.semget(key, 1, 0o1666) >= 0 else 'no',
    'message queue': 'ok' if libc.msgget(key, 0o1666) >= 0 else 'no',
    'posix queue': err('mq_open', name.encode(), os.O_CREAT | os.O_RDWR, 0o666, None),
}
print(json.dumps(made), flush=True)
sys.argv[0] = name
libc.prctl(15, name[:15].encode(), 0, 0, 0)
if V['wait']: time.sleep(60)
"""
LOOK = """
name, key = V['name'], V['key']
def abstract():
    with socket.socket(socket.AF_UNIX) as s: s.connect('\\0' + name)
libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
found = {
    'abstract socket': attempt(abstract) == 'ok',
    'file in /tmp': os.path.exists('/tmp/' + name),
    'file in /dev/shm': os.path.exists('/dev/shm/' + name),
    'file in /run': os.path.exists('/run/' + name),
    'file in /root': os.path.exists('/root/' + name),
    'shared memory': libc.shmget(key, 0, 0) >= 0,
    'semaphores': libc.semget(key, 0, 0) >= 0,
    'message queue': libc.msgget(key, 0) >= 0,
    'posix queue': err('mq_open', name.encode(), os.O_RDWR, 0, None) == 'ok',
    'process': any(text('/proc/%d/comm' % p).strip() == name[:15] for p in pids()),
    'listed': name in text('/proc/net/unix') or format(key, 'd') in text('/proc/sysvipc/shm'),
}
answer(found=found)
"""


async def test_neighbours_share_nothing(box_kernel: Runs, other: Box) -> None:
    async with box_without(box_kernel) as box:
        await _share_nothing(box, other)


async def _share_nothing(box: Box, other: Box) -> None:
    name, key = f"ak{secrets.token_hex(6)}", secrets.randbelow(1 << 30) + 1
    process, report = await start(box, MAKE, name=name, key=key, wait=True)
    try:
        assert set(json.loads(report).values()) == {"ok"}, report
        here = await box.probe(LOOK, name=name, key=key)
        assert set(here["found"].values()) == {True}, ("control", here["found"])
        there = await other.probe(LOOK, name=name, key=key)
        assert set(there["found"].values()) == {False}, there["found"]
        on_host = outside(LOOK, name=name, key=key)["found"]
        on_host.pop("process")  # the host may see its sandboxes' processes
        assert set(on_host.values()) == {False}, on_host
    finally:
        await end(process)


async def _has_sleep(box: Box) -> bool:
    names = "answer(names=[text('/proc/%d/comm' % p).strip() for p in pids()])"
    return "sleep" in (await box.probe(names))["names"]


async def test_signals_do_not_cross(box: Box, other: Box) -> None:
    """Every pid of one sandbox, tried from another: nothing is hit but one's own."""
    process = start_command(box.sandbox, ["sleep", "60"], ProcessOptions())
    try:
        await eventually(lambda: _has_sleep(box), "the victim runs")
        await other.probe(
            "own = (os.getpid(), os.getppid())\n"
            "answer(hit=[attempt(os.kill, p, 9) for p in range(2, 4000) if p not in own])"
        )
        await box.answers()
        assert await _has_sleep(box)
    finally:
        process.kill()
        process.release()


# -- keyrings -----------------------------------------------------------------------------------

KEYCTL_READ, KEYCTL_SEARCH, KEYCTL_REVOKE, KEYCTL_DESCRIBE = 11, 10, 3, 6
SEEK_KEY = """
results, secret = {}, ''.join(V['secret']).encode()
buffer = ctypes.create_string_buffer(4096)
def got(name, *args):
    size, problem = call('keyctl', *args)
    if problem != 'ok': return problem
    return 'secret' if secret in buffer.raw else 'ok'
results['read'] = got('read', 11, V['serial'], buffer, 4096)
results['describe'] = got('describe', 6, V['serial'], buffer, 4096)
for ring in (-1, -2, -3, -4, -5):
    results['search %d' % ring] = err('keyctl', 10, ring, b'user', V['name'].encode(), 0)
    results['link %d' % ring] = err('keyctl', 8, V['serial'], ring)
results['request'] = err('request_key', b'user', V['name'].encode(), None, 0)
answer(results=results, listed=V['name'] in text('/proc/keys'))
"""


class HostKey:
    def __init__(self, serial: int, name: str, secret: str) -> None:
        self.values: dict[str, Any] = {"serial": serial, "name": name, "secret": list(secret)}


@pytest.fixture(scope="module")
def host_key() -> Iterator[HostKey]:
    """A key in the session keyring of the test process, from where children inherit it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    name, secret = f"ak-{secrets.token_hex(8)}", secrets.token_hex(16)
    numbers = table(MACHINE)
    ring = ctypes.c_long(-3)
    serial = libc.syscall(
        ctypes.c_long(numbers["add_key"]), b"user", name.encode(), secret.encode(),
        ctypes.c_size_t(len(secret)), ring,
    )  # fmt: skip
    if serial < 0:
        pytest.skip(f"no key can be added here: {os.strerror(ctypes.get_errno())}")
    yield HostKey(serial, name, secret)
    libc.syscall(
        ctypes.c_long(numbers["keyctl"]), ctypes.c_long(KEYCTL_REVOKE), ctypes.c_long(serial)
    )


async def test_host_keys_cannot_be_read(host_key: HostKey, boxes: dict[str, Box]) -> None:
    for profile, box in boxes.items():
        inside = await box.probe(SEEK_KEY, **host_key.values)
        assert set(inside["results"].values()) == {"ENOSYS"}, profile
        assert not inside["listed"]


async def test_host_keys_are_not_inherited(host_key: HostKey, box: Box) -> None:
    """With filter and masks off, the fresh session keyring alone keeps the key out of reach."""
    async with box_without(box.kernel, "seccomp", "masks") as open_box:
        inside = await open_box.probe(SEEK_KEY, **host_key.values)
    results = inside["results"]
    describe = results.pop("describe")
    assert not {"ok", "secret"} & set(results.values()), results
    # The same uid outside may be told that the key exists, as any of the user's programs may.
    assert describe in ("EACCES", "ENOKEY", "ok")


def test_host_keys_are_inherited_by_children(host_key: HostKey) -> None:
    """Control: a plain child finds and reads it with the same code."""
    control = outside(SEEK_KEY, **host_key.values)
    assert control["results"]["read"] == "secret"
    assert control["results"]["search -3"] == "ok"
