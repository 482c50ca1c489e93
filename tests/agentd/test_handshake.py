"""Who may speak to agentd, and what it does with those who speak nonsense."""

from __future__ import annotations

import contextlib
import random
import secrets
import struct
import time
from pathlib import Path

import msgspec
import pytest

from .conftest import Boot, Compile
from .harness import (
    CREDIT,
    DATA,
    END,
    ERROR,
    HELLO,
    OPEN,
    Closed,
    Guest,
    Host,
    Refused,
    new_id,
    wait_for,
)


def is_closed(host: Host, timeout: float = 5.0) -> bool:
    """Takes whatever comes until agentd closes the connection."""
    deadline = time.monotonic() + timeout
    try:
        while time.monotonic() < deadline:
            host.receive(0.1)
    except Closed:
        return True
    return False


def assert_still_serves(guest: Guest) -> None:
    assert guest.connect().output("echo alive") == "alive\n"


def test_guard_is_told(guest: Guest) -> None:
    hello = guest.connect().hello
    assert hello["gen"] == 1
    assert hello["guard"]["dumpable"] == 0
    assert hello["guard"]["uid"] == 0
    assert hello["guard"]["caps"] & 1 << 7, "CAP_SETUID"
    assert isinstance(hello["version"], str)


def test_wrong_token(guest: Guest) -> None:
    host = guest.connect(handshake=False)
    host.token = secrets.token_bytes(32)
    with pytest.raises(AssertionError, match="not our agent"):
        host.shake_hands()
    # A host that does not look at the agent's proof is refused all the same.
    host = guest.connect(handshake=False)
    nonce = host.send_hello()
    frame = host.receive()
    assert frame is not None
    answer = msgspec.msgpack.decode(frame.payload)
    host.token = secrets.token_bytes(32)
    proof = host.proof(b"agentkernel host", answer["nonce"], nonce)
    host.send_map(0, HELLO, {"proof": proof})
    frame = host.receive()
    assert frame is not None and frame.type == ERROR
    assert msgspec.msgpack.decode(frame.payload)["code"] == "refused"
    assert is_closed(host)
    assert_still_serves(guest)


def test_the_agents_own_proof_is_no_proof_of_the_host(guest: Guest) -> None:
    host = guest.connect(handshake=False)
    host.send_hello()
    frame = host.receive()
    assert frame is not None
    host.send_map(0, HELLO, {"proof": msgspec.msgpack.decode(frame.payload)["proof"]})
    assert is_closed(host)


@pytest.mark.parametrize(("generations", "ok"), [((1, 9), True), ((0, 1), True), ((2, 3), False)])
def test_generations(guest: Guest, generations: tuple[int, int], ok: bool) -> None:
    host = guest.connect(handshake=False)
    host.send_hello(generations)
    frame = host.receive()
    assert frame is not None
    if ok:
        assert frame.type == HELLO and msgspec.msgpack.decode(frame.payload)["gen"] == 1
    else:
        assert frame.type == ERROR
        assert msgspec.msgpack.decode(frame.payload)["code"] == "generation"
        assert is_closed(host)


def test_nothing_works_before_the_handshake(guest: Guest) -> None:
    for stream, type, payload in [
        (1, OPEN, msgspec.msgpack.encode({"op": "ping"})),
        (1, DATA, b"\0abc"),
        (0, END, b"\x80"),
        (1, HELLO, b"\x80"),
        (0, HELLO, b"\x90"),
        (0, HELLO, b""),
        (0, HELLO, msgspec.msgpack.encode({"gen": [1, 1], "nonce": b"short"})),
        (0, HELLO, msgspec.msgpack.encode({"gen": [1], "nonce": bytes(16)})),
        (0, HELLO, msgspec.msgpack.encode({"gen": [1.5, 2], "nonce": bytes(16)})),
        (0, 99, b""),
        (0, HELLO, bytes(5000)),
    ]:
        host = guest.connect(handshake=False)
        host.send(stream, type, payload)
        assert is_closed(host), (stream, type, payload[:20])
    assert_still_serves(guest)


def test_a_handshake_has_five_seconds(guest: Guest) -> None:
    host = guest.connect(handshake=False)
    before = time.monotonic()
    assert is_closed(host, 10)
    assert 4 < time.monotonic() - before < 8


def test_at_most_eight_are_pending(guest: Guest) -> None:
    guest.connect().call("ping")
    pending = [guest.connect(handshake=False) for _ in range(8)]
    assert is_closed(guest.connect(handshake=False))
    pending[0].shake_hands()
    assert pending[0].call("ping")
    pending[1].close()
    assert wait_for(lambda: not is_closed(guest.connect(handshake=False), 0.2))


def test_the_newest_connection_wins(guest: Guest) -> None:
    first = guest.connect()
    stream = first.exec(["sleep", "60"], id=(identity := new_id()))
    first.started(stream)
    unproved = guest.connect(handshake=False)
    unproved.send_hello()
    assert first.call("ping"), "one that has not proved itself takes nothing away"
    second = guest.connect()
    assert is_closed(first)
    # What the first has started is still there.
    attached = second.open("attach", id=identity)
    assert second.pump(lambda: attached.event("attached") is not None)
    second.control(attached, kill=True)
    assert second.finish(attached)["outcome"] == "signaled"


OPEN_PING = msgspec.msgpack.encode({"op": "ping"})

MALFORMED: dict[str, bytes] = {
    "length 0": struct.pack("<IIB", 0, 1, OPEN),
    "length 4": struct.pack("<IIB", 4, 1, OPEN),
    "length above 1 MiB": struct.pack("<IIB", (1 << 20) + 1, 1, OPEN),
    "length 4 GiB": b"\xff" * 9,
    "unknown type": struct.pack("<IIB", 5, 1, 77),
    "type 0": struct.pack("<IIB", 5, 1, 0),
    "hello again": struct.pack("<IIB", 6, 0, HELLO) + b"\x80",
    "error from the host": struct.pack("<IIB", 6, 1, ERROR) + b"\x80",
    "open on stream 0": struct.pack("<IIB", 5 + len(OPEN_PING), 0, OPEN) + OPEN_PING,
    "open on an even stream": struct.pack("<IIB", 5 + len(OPEN_PING), 2, OPEN) + OPEN_PING,
    "open without a map": struct.pack("<IIB", 5, 1, OPEN),
    "open with a float": struct.pack("<IIB", 14, 1, OPEN) + msgspec.msgpack.encode(1.5),
    "open with bytes behind": struct.pack("<IIB", 7, 1, OPEN) + b"\x80\x80",
    "data on a stream that never was": struct.pack("<IIB", 6, 1, DATA) + b"\0",
    "credit on a stream that never was": struct.pack("<IIBBI", 10, 1, CREDIT, 1, 1),
    "end of a stream that never was": struct.pack("<IIB", 6, 1, END) + b"\x80",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_frames_close_the_connection_and_nothing_else(guest: Guest, name: str) -> None:
    host = guest.connect()
    host.socket.sendall(MALFORMED[name])
    assert is_closed(host)
    assert_still_serves(guest)


@pytest.mark.parametrize(
    ("type", "payload"),
    [
        (DATA, b""),
        (DATA, b"\x01to stdout"),
        (DATA, b"\x07"),
        (DATA, b"\x03\x90"),
        (DATA, b"\x03"),
        (DATA, b"\x03" + msgspec.msgpack.encode({"signal": 65})),
        (DATA, b"\x03" + msgspec.msgpack.encode({"signal": -1})),
        (DATA, b"\x03" + msgspec.msgpack.encode({"eof": 1})),
        (CREDIT, b""),
        (CREDIT, b"\x01\0\0\0"),
        (CREDIT, b"\x00\x01\0\0\0"),
        (CREDIT, b"\x01\x01\0\0\0\0"),
    ],
)
def test_malformed_frames_of_a_process(guest: Guest, type: int, payload: bytes) -> None:
    host = guest.connect()
    stream = host.exec(["sleep", "60"], stdin=True)
    host.started(stream)
    host.send(stream.id, type, payload)
    assert is_closed(host)
    assert_still_serves(guest)


def test_a_stream_number_is_used_once(guest: Guest) -> None:
    host = guest.connect()
    host.call("ping")
    host.send(1, OPEN, OPEN_PING)
    assert is_closed(host)


def test_frames_for_a_stream_that_has_ended_are_dropped(guest: Guest) -> None:
    host = guest.connect()
    stream = host.run("true")
    host.send(stream.id, DATA, b"\0late")
    host.grant(stream, 1, 100)
    host.control(stream, kill=True)
    host.send(stream.id, END, b"\x80")
    assert host.call("ping")


def test_input_beyond_the_credit_closes_the_connection(guest: Guest) -> None:
    host = guest.connect()
    stream = host.exec(["sleep", "60"], stdin=True)
    host.started(stream)
    with contextlib.suppress(ConnectionError):
        for _ in range(10):
            host.send(stream.id, DATA, b"\0" + bytes(65_536))
    assert is_closed(host)
    assert_still_serves(guest)


def test_frames_in_single_bytes(guest: Guest) -> None:
    host = guest.connect(handshake=False)
    host.step = 1
    host.shake_hands()
    assert host.output("echo slow") == "slow\n"


@pytest.mark.slow
def test_noise(guest: Guest) -> None:
    """Random frames, before and after the handshake: agentd goes on serving."""
    noise = random.Random(7)
    maps = [{"op": op, "id": "x" * 20} for op in ("exec", "attach", "signal", "forget", "tcp")]
    for round_ in range(60):
        host = guest.connect(handshake=round_ % 3 != 0)
        with contextlib.suppress(ConnectionError, Closed):
            for _ in range(20):
                payload = noise.randbytes(noise.choice([0, 1, 5, 6, 40]))
                if noise.random() < 0.5:
                    flawed = bytearray(msgspec.msgpack.encode(noise.choice(maps)))
                    flawed[noise.randrange(len(flawed))] ^= 1 << noise.randrange(8)
                    payload = bytes(flawed)
                stream = noise.choice([0, 1, 3, 5, host.next_stream, 2, 0xFFFFFFFF])
                host.send(stream, noise.randrange(0, 8), payload)
                host.next_stream += 2
        host.close()
    assert_still_serves(guest)


def test_an_ephemeral_sandbox_ends_with_its_host(boot: Boot) -> None:
    guest = boot(ephemeral=True)
    host = guest.connect()
    host.exec(["sleep", "60"])
    host.call("ping")
    guest.connect().call("ping")  # replaces the first, which ends nothing
    assert guest.alive
    guest.hosts[-1].close()
    assert wait_for(lambda: not guest.alive)


def test_an_ephemeral_sandbox_without_a_host_ends(boot: Boot) -> None:
    guest = boot(ephemeral=True, connect_ms=300)
    guest.connect(handshake=False).send_hello()  # no proof
    before = time.monotonic()
    assert wait_for(lambda: not guest.alive)
    assert time.monotonic() - before < 5


def test_shutdown(guest: Guest) -> None:
    host = guest.connect()
    polite = host.exec("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    stubborn = host.exec("trap '' TERM; echo ready; while :; do sleep 0.01; done")
    assert host.pump(lambda: bool(polite.out) and bool(stubborn.out))
    before = time.monotonic()
    end = host.open("shutdown", grace_ms=500)
    with pytest.raises(Refused, match="refused"):
        host.finish(host.exec("true"))
    assert host.finish(end) == {}
    assert 0.4 < time.monotonic() - before < 5
    assert bytes(polite.out) == b"ready\nbye\n"
    assert polite.end is not None and polite.end["code"] == 0
    assert stubborn.end is not None and stubborn.end["signal"] == 9
    assert wait_for(lambda: not guest.alive)


def test_shutdown_without_processes_is_quick(guest: Guest) -> None:
    before = time.monotonic()
    assert guest.connect().call("shutdown", grace_ms=10_000) == {}
    assert wait_for(lambda: not guest.alive)
    assert time.monotonic() - before < 5


@pytest.mark.slow
def test_at_most_1024_streams(guest: Guest) -> None:
    host = guest.connect()
    streams = [host.exec(["sleep", "60"]) for _ in range(1025)]
    with pytest.raises(Refused, match="busy"):
        host.finish(streams[-1])
    # An operation that is answered at once needs none, and one that ends makes room.
    assert host.call("ping")
    host.control(streams[0], kill=True)
    host.finish(streams[0])
    host.started(host.exec(["sleep", "60"]))


@pytest.mark.slow
def test_at_most_4096_records(guest: Guest, compile_: Compile) -> None:
    nothing = compile_("nothing", "int main(void) { return 0; }")
    host = guest.connect()
    for _ in range(4096 // 64):
        started = [host.exec([nothing], job=True) for _ in range(64)]
        for stream in started:
            host.finish(stream)
    with pytest.raises(Refused, match="busy"):
        host.finish(host.exec([nothing]))
    records = host.call("list")["procs"]
    assert len(records) == 4096
    host.call("forget", id=records[0]["id"])
    host.finish(host.exec([nothing]))


def test_configuration_on_stdin_and_a_socket_of_its_own(
    boot: Boot, binary: Path, programs: Path
) -> None:
    """For engines that let in no descriptors but stdio."""
    place = programs / secrets.token_hex(4)
    place.mkdir()
    place.chmod(0o777)
    by_stdin = ["sh", "-c", 'exec "$0" <&4 3<&- 4<&-', str(binary)]
    guest = boot(command=by_stdin, listen=str(place / "s"))
    guest.path = place / "s"

    def answers() -> bool:
        try:
            guest.connect(handshake=False)
        except OSError:
            return False
        return True

    assert wait_for(answers)
    assert_still_serves(guest)
    assert guest.connect().output("readlink /proc/self/fd/0") == "/dev/null\n"
    assert guest.connect().output(f"ls {place}") == "s\n", "made by agentd, with nothing beside it"


def test_without_a_configuration_it_ends(boot: Boot, binary: Path) -> None:
    nothing = ["sh", "-c", 'exec "$0" </dev/null 3<&- 4<&- 2>/dev/null', str(binary)]
    guest = boot(command=nothing)
    assert wait_for(lambda: not guest.alive)
