"""The filtered side of the kernel tests; runs as a script, in a process made for it.

    seccomp_child.py probe FILTER     system calls from stdin, answers on stdout
    seccomp_child.py exec FILTER CMD  installs the filter, then becomes CMD

FILTER is a file with the program, or "-" for a control without any.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys

SECCOMP_NUMBER = {"x86_64": 317, "aarch64": 277}
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def call(number: int, *args: int) -> int:
    ctypes.set_errno(0)
    words = [ctypes.c_ulong(arg & (1 << 64) - 1) for arg in (*args, *([0] * (6 - len(args))))]
    result: int = libc.syscall(ctypes.c_long(number), *words)
    return result


def install(path: str) -> None:
    if path == "-":
        return
    with open(path, "rb") as file:
        program = file.read()
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = SockFprog(len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        sys.exit("no_new_privs failed")
    number = SECCOMP_NUMBER[os.uname().machine]
    if call(number, SECCOMP_SET_MODE_FILTER, 0, ctypes.addressof(fprog)) != 0:
        sys.exit(f"the kernel refused the filter: {os.strerror(ctypes.get_errno())}")


def answer(number: int, args: list[int]) -> str:
    """The outcome of one call, made in a child so that nothing it changes is left behind."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        result = call(number, *args)
        code = ctypes.get_errno()
        word = "ok" if result != -1 or code == 0 else errno.errorcode.get(code, str(code))
        os.write(writer, word.encode())
        os._exit(0)
    os.close(writer)
    word = os.read(reader, 64).decode()
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else word


def main() -> None:
    mode, path, *command = sys.argv[1:]
    if mode == "exec":
        install(path)
        os.execvp(command[0], command)
    request = json.load(sys.stdin)
    install(path)
    json.dump([answer(number, args) for number, args in request["calls"]], sys.stdout)


if __name__ == "__main__":
    main()
