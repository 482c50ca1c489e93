"""The blocking SDK against a daemon: what the README shows, and what must hold around it."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentkernel
from agentkernel import Outcome, Sandbox, errors
from agentkernel.backends.local import idmaps
from agentkernel.client._sync.transport import Transport, shared_transport

pytestmark = pytest.mark.usefixtures("daemon_dir")
HAS_SEVERAL_IDS = idmaps.is_host_root() or idmaps.find_subids() is not None


@pytest.fixture
def sandbox(daemon_dir: Path) -> Iterator[Sandbox]:
    with Sandbox.create(ttl_seconds=900) as sandbox:
        yield sandbox


def test_the_example() -> None:
    with Sandbox.create(ttl_seconds=900) as sandbox:
        result = sandbox.exec("python3 -c 'print(2 + 2)'")
        assert (result.stdout, result.exit_code) == ("4\n", 0)
        id = sandbox.id
    with pytest.raises(errors.NotFoundError):
        Sandbox.connect(id)


def test_probe(sandbox: Sandbox) -> None:
    result = sandbox.probe()
    assert result.fit and result.wrong == []
    assert "root" in result.users
    found = {finding.name: finding for finding in result.findings}
    assert found["call.mount"].state == "closed"
    assert found["call.mount"].answers["root"] == "EPERM"
    chroot = found["call.chroot"]
    assert (chroot.state, chroot.expected) == ("open", True)
    assert chroot.reason and "CAP_SYS_CHROOT" in chroot.reason
    assert sandbox.exec("ls -A /tmp").stdout == ""
    sandbox.remove()
    with pytest.raises(errors.NotFoundError):
        sandbox.probe()


def test_usage_and_notices(sandbox: Sandbox) -> None:
    assert sandbox.info.usage is None, "nobody asked yet"
    done = sandbox.exec("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo 12345")
    assert done.cpu_seconds is not None and done.cpu_seconds > 0
    assert done.output_bytes == 6
    info = sandbox.refresh()
    assert info.usage is not None and info.usage["cpu_seconds"] > 0
    with Sandbox.create(cpus=0.5, best_effort=True) as other:
        lines = {line["what"]: line["enforced_by"] for line in other.refresh().raw["effective"]}
        held = not lines["cpus"].startswith("not enforced")
        assert held != any(notice.startswith("cpus 0.5 is not") for notice in other.info.notices)


def test_argv_is_not_for_a_shell(sandbox: Sandbox) -> None:
    assert sandbox.exec(["echo", "$HOME", "a b"]).stdout == "$HOME a b\n"


def test_options_of_a_command(sandbox: Sandbox) -> None:
    done = sandbox.exec("echo $A; pwd; cat", env={"A": "1"}, cwd="/var", stdin="in")
    assert done.stdout == "1\n/var\nin"
    if HAS_SEVERAL_IDS:
        assert sandbox.exec("id -u", user="user").stdout == "1000\n"
    else:
        with pytest.raises(errors.UnsupportedError, match="one user id"):
            sandbox.exec("id -u", user="user")


def test_bytes_survive(sandbox: Sandbox) -> None:
    data = bytes(range(256))
    done = sandbox.exec(["cat"], stdin=data)
    assert done.stdout_bytes == data
    assert "\N{REPLACEMENT CHARACTER}" in done.stdout


def test_a_failed_command_is_a_result_unless_asked(sandbox: Sandbox) -> None:
    done = sandbox.exec("echo why >&2; exit 3")
    assert (done.outcome, done.exit_code, done.ok, done.stderr) == ("exited", 3, False, "why\n")
    with pytest.raises(errors.CommandFailedError, match="exited with 3: why") as caught:
        sandbox.exec("echo why >&2; exit 3", check=True)
    assert (caught.value.result.exit_code, caught.value.result.stderr) == (3, "why\n")


def test_a_timeout_is_an_outcome_and_can_be_a_timeout_error(sandbox: Sandbox) -> None:
    done = sandbox.exec("sleep 60", timeout_seconds=0.2)
    assert (done.outcome, done.exit_code) == (Outcome.TIMEOUT, None)
    with pytest.raises(TimeoutError):
        sandbox.exec("sleep 60", timeout_seconds=0.2, check=True)


def test_what_can_not_be_started(sandbox: Sandbox) -> None:
    done = sandbox.exec(["no-such-program"])
    assert (done.outcome, done.errno, done.stage) == ("not_started", "ENOENT", "exec")


def test_stream_is_live(sandbox: Sandbox) -> None:
    with sandbox.stream("echo one; read line; echo got $line >&2; exit 5", stdin=True) as stream:
        first = stream.read(seconds=20)
        assert first is not None
        assert (first.stream, first.text, first.offset) == ("stdout", "one\n", 0)
        stream.write("word\n")
        rest = list(stream)
    assert [(chunk.stream, chunk.data) for chunk in rest] == [("stderr", b"got word\n")]
    assert stream.result.exit_code == 5


def test_stream_never_splits_a_character(sandbox: Sandbox) -> None:
    command = r"printf '\303'; sleep 0.2; printf '\244\303'"
    text = "".join(chunk.text for chunk in sandbox.stream(command))
    assert text == "ä\N{REPLACEMENT CHARACTER}"


def test_stream_signals_and_kills(sandbox: Sandbox) -> None:
    with sandbox.stream("trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done") as stream:
        assert stream.read(seconds=20)
        stream.signal(signal.SIGTERM)
        assert stream.wait().exit_code == 9
    with sandbox.stream("echo up; sleep 60") as stream:
        assert stream.read(seconds=20)
        stream.kill()
        assert stream.wait().signal == signal.SIGKILL


def test_stream_of_a_terminal(sandbox: Sandbox) -> None:
    with sandbox.stream("stty size; read x; stty size", pty=(30, 100)) as stream:
        output = ""
        while "30 100" not in output:
            output += _text(stream.read(seconds=20))
        stream.resize(40, 120)
        stream.write("\n")
        output += "".join(chunk.text for chunk in stream)
    assert "40 120" in output


def _text(chunk: object) -> str:
    return str(getattr(chunk, "text", ""))


def test_a_slow_reader_loses_nothing(sandbox: Sandbox) -> None:
    count = 8_000_000
    stream = sandbox.stream(f"head -c {count} /dev/zero | tr '\\0' x")
    with stream:
        stream.read(seconds=20)
        time.sleep(0.5)
        assert sum(len(chunk.data) for chunk in stream) > 0
    assert stream.result.exit_code == 0
    assert stream.result.dropped_bytes == 0


def test_input_of_megabytes_through_a_stream(sandbox: Sandbox) -> None:
    data = os.urandom(3_000_000)
    with sandbox.stream("sha256sum", stdin=True) as stream:
        stream.write(data)
        stream.close_stdin()
        output = b"".join(chunk.data for chunk in stream)
    assert output.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_signals_pass_input_that_is_not_taken(sandbox: Sandbox) -> None:
    with sandbox.stream("echo up; exec sleep 60", stdin=True) as stream:
        assert stream.read(seconds=20)
        writer = threading.Thread(target=stream.write, args=(bytes(3_000_000),))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive(), "who would have taken it?"
        stream.signal(signal.SIGTERM)
        assert stream.wait().signal == signal.SIGTERM
        writer.join(20)
        assert not writer.is_alive()


def test_writing_puts_output_aside_and_nothing_is_lost(sandbox: Sandbox) -> None:
    """One thread: what comes while a write waits is there when it is read."""
    data = os.urandom(600_000)
    with sandbox.stream("head -c 500000 | cat; cat >/dev/null; echo end", stdin=True) as stream:
        stream.write(data)
        stream.write(data)
        stream.close_stdin()
        chunks = list(stream)
    assert b"".join(chunk.data for chunk in chunks) == data[:500_000] + b"end\n"
    assert [chunk.offset for chunk in chunks][0] == 0
    assert stream.result.exit_code == 0


def test_output_beyond_a_cap_is_counted(sandbox: Sandbox) -> None:
    with sandbox.stream("head -c 5000 /dev/zero; echo e >&2", output_bytes=100) as stream:
        assert sum(len(chunk.data) for chunk in stream) == 102
    assert stream.truncated == {"stdout": 100}
    assert (stream.result.truncated, stream.result.dropped_bytes) == (True, 4900)


def test_what_a_job_has_written_so_far(sandbox: Sandbox) -> None:
    job = sandbox.jobs.start("echo here; sleep 60")
    with job.output() as live:
        assert live.read(seconds=20)  # it has written that
    output = job.output(follow=False)
    assert "".join(chunk.text for chunk in output) == "here\n"
    with pytest.raises(errors.InvalidInputError):
        _ = output.result
    job.kill()
    assert job.wait().signal == signal.SIGKILL
    output = job.output(follow=False)
    assert "".join(chunk.text for chunk in output) == "here\n"
    assert output.result.signal == signal.SIGKILL


def test_result_is_refused_before_the_end(sandbox: Sandbox) -> None:
    stream = sandbox.stream("true")
    with pytest.raises(errors.InvalidInputError):
        _ = stream.result
    assert stream.wait().ok
    assert list(stream) == []


def test_jobs(sandbox: Sandbox) -> None:
    job = sandbox.jobs.start("echo a; sleep 0.3; echo b; exit 4")
    assert job.info.state == "running"
    assert [chunk.text for chunk in job.output()][-1] == "b\n"
    assert job.wait().exit_code == 4
    # What it wrote is kept, from any offset, also after its end.
    later = list(sandbox.jobs.get(job.id).output(stdout_offset=2))
    assert [(chunk.text, chunk.offset) for chunk in later] == [("b\n", 2)]
    assert [entry.id for entry in sandbox.jobs.list()] == [job.id]
    ended = sandbox.jobs.get(job.id)
    assert (ended.info.state, ended.wait().exit_code) == ("ended", 4)


def test_a_job_goes_on_without_its_reader_and_can_be_killed(sandbox: Sandbox) -> None:
    job = sandbox.jobs.start(["sh", "-c", "echo up; sleep 60"])
    with job.output() as output:
        assert output.read(seconds=20)
    assert job.refresh().state == "running"
    job.kill()
    assert job.wait().signal == signal.SIGKILL


def test_run_leaves_nothing() -> None:
    before = {sandbox.id for sandbox in Sandbox.list()}
    assert Sandbox.run("echo $X", env={"X": "y"}, check=True).stdout == "y\n"
    assert {sandbox.id for sandbox in Sandbox.list()} == before


def test_run_as_a_function() -> None:
    done = agentkernel.run("cat; echo $A; exit 3", stdin="in ", env={"A": "b"})
    assert (done.stdout, done.exit_code) == ("in b\n", 3)
    with pytest.raises(errors.CommandFailedError):
        agentkernel.run(["false"], check=True)
    assert agentkernel.run("sleep 60", ttl_seconds=0.5).outcome is Outcome.LOST


def test_run_as_a_stream() -> None:
    with Sandbox.run_stream("read x; echo got $x; exit 4", stdin=True, env={"A": "b"}) as stream:
        stream.write("word\n")
        assert "".join(chunk.text for chunk in stream) == "got word\n"
    assert stream.result.exit_code == 4
    with Sandbox.run_stream("echo up; sleep 60") as stream:
        assert stream.read(seconds=60)
        assert len(Sandbox.list()) >= 1
    deadline = time.monotonic() + 20
    while Sandbox.list():  # leaving it early removes the sandbox
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_named_one_stays_and_keeps_its_files() -> None:
    with Sandbox.create(name="stays", labels={"kind": "test-stays"}) as sandbox:
        sandbox.exec("echo kept > /root/file", check=True)
    again = Sandbox.connect("stays")
    try:
        assert again.stop().state == "stopped"
        with pytest.raises(errors.ConflictError):
            again.exec("true")
        assert again.start().state == "running"
        assert again.exec("cat /root/file").stdout == "kept\n"
        assert again.extend(60).expires_at is not None
        assert [entry.id for entry in Sandbox.list(labels={"kind": "test-stays"})] == [again.id]
        assert Sandbox.list(labels={"kind": "other"}) == []
        assert again.refresh().raw["effective"]
        with pytest.raises(errors.ConflictError):
            Sandbox.create(name="stays")
    finally:
        again.remove()


def test_create_can_be_repeated() -> None:
    first = Sandbox.create(idempotency_key="the-same")
    with first:
        assert Sandbox.create(idempotency_key="the-same").id == first.id


def test_wrong_words_are_errors_of_ours_and_of_python() -> None:
    with pytest.raises(ValueError, match="unknown field"):
        Sandbox.create(no_such_field=1)
    with pytest.raises(errors.InvalidInputError):
        Sandbox.create(memory_bytes=1)
    with pytest.raises(errors.NotFoundError):
        Sandbox.connect("no-such-sandbox")
    with pytest.raises(errors.NotFoundError):
        Sandbox.connect("../version")


def test_stream_of_a_missing_sandbox_is_not_found(sandbox: Sandbox) -> None:
    sandbox.remove()
    with pytest.raises(errors.NotFoundError):
        list(sandbox.stream("true"))


def test_connections_are_used_again(sandbox: Sandbox) -> None:
    transport = shared_transport()
    sandbox.exec("true")
    first = transport._pool[-1]
    sandbox.exec("true")
    assert transport._pool[-1] is first


def test_no_daemon_is_said_when_none_may_be_started(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="no daemon answers"):
        Transport(str(tmp_path), start=False).call("GET", "/v1/version")


def test_a_path_longer_than_a_socket_address(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    transport = Transport(str(deep))
    try:
        assert transport.call("GET", "/v1/version")["state_dir"] == str(deep)
    finally:
        pid = transport.call("GET", "/v1/version")["pid"]
        transport.call("POST", "/v1/shutdown")
        transport.close()
        transport.daemon.wait_gone(pid)


# -- files --------------------------------------------------------------------------------------


def test_files(sandbox: Sandbox) -> None:
    files = sandbox.files
    assert files.write("/tmp/a.txt", "hi") == 2
    assert files.read("/tmp/a.txt") == "hi"
    files.append("/tmp/a.txt", b"\xff")
    assert files.read_bytes("/tmp/a.txt") == b"hi\xff"
    assert files.read_bytes("/tmp/a.txt", offset=1, length=1) == b"i"
    with pytest.raises(UnicodeDecodeError):
        files.read("/tmp/a.txt")
    files.write("/tmp/new/deep/b", b"", mode=0o600, parents=True)
    entry = files.stat("/tmp/new/deep/b")
    assert (entry.name, entry.type, entry.size, entry.mode & 0o777) == ("b", "file", 0, 0o600)
    files.mkdir("/tmp/new/dir", mode=0o700)
    assert {entry.name: entry.type for entry in files.list("/tmp/new")} == {
        "deep": "dir",
        "dir": "dir",
    }
    files.move("/tmp/a.txt", "/tmp/new/c")
    assert not files.exists("/tmp/a.txt")
    assert files.exists("/tmp/new/c")
    files.remove("/tmp/new", recursive=True)
    assert not files.exists("/tmp/new/c")


def test_files_fail_as_files_do(sandbox: Sandbox) -> None:
    files = sandbox.files
    with pytest.raises(FileNotFoundError) as caught:
        files.read("/no/such")
    assert isinstance(caught.value, errors.GuestFileNotFoundError)
    assert caught.value.filename == "/no/such"
    with pytest.raises(IsADirectoryError):
        files.read("/tmp")
    files.write("/tmp/x", "")
    with pytest.raises(NotADirectoryError):
        files.list("/tmp/x")
    with pytest.raises(FileExistsError):
        files.mkdir("/tmp/x")


def test_large_file_comes_back_equal(sandbox: Sandbox) -> None:
    data = os.urandom(5_000_000)
    sandbox.files.write("/var/tmp/big", data)
    assert sandbox.files.read_bytes("/var/tmp/big") == data


def test_odd_file_names(sandbox: Sandbox) -> None:
    name = b"/tmp/a b&\xff\n".decode("utf-8", "surrogateescape")
    sandbox.files.write(name, "x")
    assert sandbox.files.read(name) == "x"
    assert os.path.basename(name) in [entry.name for entry in sandbox.files.list("/tmp")]
