"""Attacks that are run on more than one kind of sandbox: native ones and those of other engines."""

from __future__ import annotations

import socket
from typing import Any

from .conftest import Planted
from .probes import Box

# The secret comes split, so that the probe's own source and memory do not hold it.
HUNT = """
secret = ''.join(V['secret']).encode()
found = []
def look(place, data):
    if data and secret in data: found.append(place)

for name in V['files']:
    for prefix in ['', '/proc/self/root', '/proc/1/root', '/proc/1/cwd', '/proc/self/cwd',
                   '/..' * 40, '/proc/self/root' + '/..' * 40, '/proc/1/cwd' + '/..' * 40]:
        look(prefix + name, read(prefix + name))
for pid in pids():
    for part in ('root', 'cwd'):
        for name in V['files']: look('of %d' % pid, read('/proc/%d/%s%s' % (pid, part, name)))
    for part in ('environ', 'cmdline', 'mountinfo', 'maps'):
        look('/proc/%d/%s' % (pid, part), read('/proc/%d/%s' % (pid, part)))
for fd in range(3, 1024):
    base = '/proc/self/fd/%d' % fd
    look('descriptor', read(base))
    for name in V['files']:
        for up in ('', '/..', '/../..', '/../../..'):
            look('below a descriptor', read(base + up + '/' + os.path.basename(name)))
            look('above a descriptor', read(base + up + name))
skipped = tuple(V['skipped'])
for directory, names, files in os.walk('/'):
    names[:] = [n for n in names if not os.path.join(directory, n).startswith(skipped)]
    for file in files:
        path = os.path.join(directory, file)
        if os.path.isfile(path) and os.path.getsize(path) < 1 << 20: look(path, read(path))
os.chdir('/')
for _ in range(64): os.chdir('..')
for name in V['files']: look('above the root', read(name.lstrip('/')))
answer(found=found)
"""


def hunt_values(box: Box, planted: Planted) -> dict[str, Any]:
    trees = [tree.path for tree in box.sandbox.root.trees]
    return {
        "secret": list(planted.secret),
        "files": [str(file) for file in planted.files],
        "skipped": ["/proc", "/sys", "/usr", "/dev", *trees],
    }


# Which descriptors a process starts with, and what they are.
DESCRIPTORS = """
import resource
open_ = []
for fd in range(1024):
    try: os.fstat(fd)
    except OSError: continue
    open_.append(fd)
answer(open=open_, kinds=[os.readlink('/proc/self/fd/%d' % fd).split(':')[0] for fd in open_])
"""

# Attacks on the process V['target']; 0 means a child of the attacker's own.
INTRUDE = """
target = V['target']
child = 0
if not target:
    child = target = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
buffer = ctypes.create_string_buffer(16)
class Iov(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
def vm(name):
    local = Iov(ctypes.addressof(buffer), 8)
    address = ctypes.addressof(buffer) if child else 0x400000
    return err(name, target, local, 1, Iov(address, 8), 1, 0)
def mem(flags):
    try: fd = os.open('/proc/%d/mem' % target, flags)
    except OSError as e: return name_of(e.errno)
    with open('/proc/%d/maps' % target) as f: start = int(f.readline().split('-')[0], 16)
    return attempt(os.pread, fd, 8, start)
def take_descriptor():
    try: pidfd = os.pidfd_open(target)
    except OSError as e: return name_of(e.errno)
    return [err('pidfd_getfd', pidfd, fd, 0) for fd in range(12)]
def lines(name): return len(text('/proc/%d/%s' % (target, name)))
def link(name): return attempt(os.readlink, '/proc/%d/%s' % (target, name))
PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_DETACH = 16, 0x4206, 17
results = {
    'mem': mem(os.O_RDONLY), 'mem rw': mem(os.O_RDWR),
    'process_vm_readv': vm('process_vm_readv'), 'process_vm_writev': vm('process_vm_writev'),
    'pidfd_getfd': take_descriptor(), 'kcmp': err('kcmp', target, os.getpid(), 0, 0, 0),
    'fd link': [link('fd/%d' % n) for n in range(8)], 'exe': link('exe'), 'cwd': link('cwd'),
    'root': link('root'), 'open fd': [can_open('/proc/%d/fd/%d' % (target, n), os.O_RDONLY)
                                      for n in range(12)],
    'maps': lines('maps'), 'environ': lines('environ'), 'auxv': lines('auxv'),
    'stack': lines('stack'), 'syscall': lines('syscall'), 'io': lines('io'),
    'map_files': attempt(os.listdir, '/proc/%d/map_files' % target),
    'ns': [link('ns/' + n) for n in ('mnt', 'pid', 'user', 'net')],
    'process_madvise': err('process_madvise', -1, None, 0, 0, 0),
    'seize': err('ptrace', PTRACE_SEIZE, target, 0, 0),
}
results['attach'] = err('ptrace', PTRACE_ATTACH, target, 0, 0) if results['seize'] != 'ok' else 'ok'
if child: os.kill(child, signal.SIGKILL)
answer(results=results)
"""


def intrusions(results: dict[str, object]) -> list[str]:
    """Names of the attacks that gave something."""
    gave = []
    for name, result in results.items():
        values = result if isinstance(result, list) else [result]
        if any(value == "ok" or (isinstance(value, int) and value > 0) for value in values):
            gave.append(name)
    return gave


CONNECT = """
def connect(family, address, kind=socket.SOCK_STREAM):
    begin = time.monotonic()
    with socket.socket(family, kind) as s:
        s.settimeout(3)
        try:
            s.connect(tuple(address) if isinstance(address, list) else address)
            result = 'ok'
            if kind == socket.SOCK_DGRAM: s.send(b'x')
        except TimeoutError: result = 'timeout'
        except OSError as e: result = name_of(e.errno)
    return [result, time.monotonic() - begin]
answer(results={label: connect(*args) for label, args in V['to'].items()})
"""
INET, INET6, UNIX = int(socket.AF_INET), int(socket.AF_INET6), int(socket.AF_UNIX)


def planted_addresses(planted: Planted) -> dict[str, list[object]]:
    return {
        "tcp": [INET, ["127.0.0.1", planted.tcp_port]],
        "tcp by name": [INET, ["localhost", planted.tcp_port]],
        "abstract socket": [UNIX, f"\0{planted.abstract}"],
        "path socket": [UNIX, str(planted.socket_path)],
    }


# Who a process is and what it may.
STATUS = """
s = status()
answer(**{k: s[k].strip() for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs',
                                    'Seccomp', 'Uid', 'Gid', 'Groups')})
"""
