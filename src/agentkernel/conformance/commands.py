"""Commands, terminals, jobs."""

from __future__ import annotations

import signal

from agentkernel.conformance.bench import (
    Bench,
    ended,
    expect,
    read_until,
    says,
    sh,
    start,
    within,
)
from agentkernel.errors import UnsupportedError
from agentkernel.guest.channel import Control, Output
from agentkernel.guest.processes import GuestProcess, Outcome, ProcessOptions
from agentkernel.ids import new_id
from agentkernel.kernel.commands import run_command, start_command


async def a_command_runs_to_its_end(bench: Bench) -> None:
    """exit code, stdout, stderr, stdin, environment and directory are the command's own"""
    async with bench.sandbox() as sandbox:
        script = "cat; echo $WORD >&2; pwd; exit 7"
        options = ProcessOptions(env={"WORD": "given"}, cwd="/usr")
        result = await within(run_command(sandbox, ["sh", "-c", script], options, stdin=b"in\n"))
        expect(result.status.exit_code == 7, result.status)
        expect((result.stdout, result.stderr) == (b"in\n/usr\n", b"given\n"), result)
        names = await says(sandbox, "env | cut -d= -f1")
        expect("AGENTKERNEL" not in names, names)


async def what_can_not_start_says_why(bench: Bench) -> None:
    """a missing program or directory is the outcome not_started, with errno and stage"""
    async with bench.sandbox() as sandbox:
        missing = await within(run_command(sandbox, ["/no/such/program"]))
        expect(missing.status.outcome is Outcome.NOT_STARTED, missing.status)
        expect((missing.status.errno, missing.status.stage) == ("ENOENT", "exec"), missing.status)
        nowhere = await sh(sandbox, "true", cwd="/no/such/directory")
        expect((nowhere.status.errno, nowhere.status.stage) == ("ENOENT", "cwd"), nowhere.status)


async def signals_are_told(bench: Bench) -> None:
    """a signal reaches the command, and an end by signal is the outcome signaled"""
    async with bench.sandbox() as sandbox:
        process = start(
            sandbox, "trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.05; done"
        )
        await read_until(process, b"ready\n")
        process.signal(signal.SIGUSR1)
        expect(b"caught" in await ended(process), "the handler did not run")
        expect(process.status and process.status.exit_code == 3, process.status)
        killed = await sh(sandbox, "kill -SEGV $$")
        expect(killed.status.outcome is Outcome.SIGNALED, killed.status)
        expect(killed.status.signal == signal.SIGSEGV, killed.status)


async def a_timeout_ends_the_whole_tree(bench: Bench) -> None:
    """children that called setsid and forked twice end with the command, too"""
    async with bench.sandbox() as sandbox:
        script = "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; sleep 1000"
        result = await sh(sandbox, script, timeout_seconds=1.0)
        expect(result.status.outcome is Outcome.TIMEOUT, result.status)
        count = await says(sandbox, "cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep || true")
        expect(count.strip() == "0", f"{count.strip()} of them are left")


async def large_output_arrives_whole(bench: Bench) -> None:
    """8 MiB in each direction, byte by byte the same"""
    async with bench.sandbox() as sandbox:
        data = bytes(range(256)) * 4096 * 8
        result = await within(run_command(sandbox, ["cat"], stdin=data))
        expect(result.status.exit_code == 0, result.status)
        expect(result.stdout == data, f"{len(result.stdout)} bytes came back of {len(data)}")


async def users_are_told_apart(bench: Bench) -> None:
    """a command runs as the user it is asked to, or is refused with a typed error"""
    async with bench.sandbox() as sandbox:
        expect((await says(sandbox, "id -u")).strip() == "0", "the default is root")
        try:
            sandbox.check_user("user")
        except UnsupportedError as exc:
            expect(exc.hint, "a refusal says what mends it")
            return
        expect((await says(sandbox, "id -u", user="user")).strip() == "1000", "id of `user`")
        await says(sandbox, "umask 077; echo secret > /tmp/of-root")
        denied = await sh(sandbox, "cat /tmp/of-root", user="user")
        expect(denied.status.exit_code == 1 and not denied.stdout, denied)
        expect(
            (await says(sandbox, "touch /tmp/x && stat -c %u /tmp/x", user="user")).strip()
            == "1000",
            "owner",
        )


async def a_terminal_is_one(bench: Bench) -> None:
    """a pseudo-terminal with its size, resizing, echo and the interrupt character"""
    script = (
        "tty; stty size; read x; trap 'echo caught; exit 5' INT; stty size; echo $x; "
        "while :; do sleep 0.05; done"
    )
    async with bench.sandbox() as sandbox:
        process = start(sandbox, script, pty=(24, 80))
        output = await read_until(process, b"24 80\r\n")
        expect(b"/dev/pts/" in output, output)
        process.resize(50, 132)
        await process.write(b"go\n")
        await read_until(process, b"50 132\r\ngo\r\n")
        await process.write(b"\x03")
        expect(b"caught" in await ended(process), "the interrupt character did nothing")
        expect(process.status and process.status.exit_code == 5, process.status)


async def a_job_outlives_its_caller(bench: Bench) -> None:
    """a job goes on without a connection, its output is there from any offset afterwards, and its
    terminal, if it has one, is what it was"""
    blueprint = bench.blueprint()
    sandbox = await bench.backend().create(blueprint)
    try:
        id = new_id()
        options = ProcessOptions(job=True, stdin=True)
        job = start_command(sandbox, ["sh", "-c", "echo one; read x; echo two $x"], options, id=id)
        await read_until(job, b"one\n")
        screen = start(sandbox, "echo up; read x; stty size; echo $x", job=True, pty=(24, 80))
        await read_until(screen, b"up\r\n")
        sandbox.channel.close()
        again = await bench.backend().reattach(blueprint)
        expect(again is not None, "the sandbox was not found again")
        assert again is not None
        sandbox = again
        attached = GuestProcess.attach(sandbox.channel, id, stdout_offset=2)
        await read_until(attached, b"e\n")
        await attached.write(b"more\n")
        expect(await ended(attached) == b"two more\n", "the rest of the output")
        expect(attached.status and attached.status.exit_code == 0, attached.status)
        screen = GuestProcess.attach(sandbox.channel, screen.id, stdout_offset=4)
        screen.resize(50, 132)
        await screen.write(b"go\n")
        expect(b"50 132\r\ngo\r\n" in await ended(screen), "the terminal")
    finally:
        await sandbox.destroy()
    await bench.expect_gone(blueprint.id)


async def a_port_inside_can_be_reached(bench: Bench) -> None:
    """a connection through agentd to a server on the sandbox's loopback"""
    server = (
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 8080))\n"
        "print('up', flush=True)\n"
        "c, _ = s.accept()\n"
        "c.sendall(b'echo ' + c.recv(100))\n"
    )
    async with bench.sandbox() as sandbox:
        process = start_command(sandbox, ["python3", "-c", server], ProcessOptions())
        await read_until(process, b"up\n")
        relay = sandbox.channel.open("tcp", port=8080)
        expect(isinstance(await within(relay.next()), Control), "connected")
        await relay.send(b"hello")
        answer = await within(relay.next())
        expect(isinstance(answer, Output) and answer.data == b"echo hello", answer)
        relay.release()
        await ended(process)


async def many_commands_at_once(bench: Bench) -> None:
    """32 commands side by side, each with its own output"""
    async with bench.sandbox() as sandbox:
        running = [start(sandbox, f"echo {n}; read x", stdin=True) for n in range(32)]
        for number, process in enumerate(running):
            expect(await read_until(process, b"\n") == f"{number}\n".encode(), number)
        for process in running:
            process.close_stdin()
            await ended(process)


CASES = (
    a_command_runs_to_its_end,
    what_can_not_start_says_why,
    signals_are_told,
    a_timeout_ends_the_whole_tree,
    large_output_arrives_whole,
    users_are_told_apart,
    a_terminal_is_one,
    a_job_outlives_its_caller,
    a_port_inside_can_be_reached,
    many_commands_at_once,
)
