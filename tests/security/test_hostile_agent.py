"""The guest end of the channel is hostile: whatever it sends, the host gets a typed error, soon.

The control of every attack here is `test_an_honest_agent_is_believed` and its like: the same fake
agent with the lie left out is accepted, so it is the lie that was refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentkernel.errors import AgentKernelError, GuestProtocolError, GuestTimeoutError
from agentkernel.guest.channel import GuestChannel
from agentkernel.guest.processes import GuestProcess, Outcome, ProcessOptions
from agentkernel.guest.protocol import (
    DEFAULT_WINDOW,
    Channel,
    FrameType,
    control_frame,
    credit_frame,
    data_frame,
    frame,
    map_frame,
)

from .fake_agent import MIB, Peer, Script, fake_agent, measured
from .probes import eventually

DEADLINE = 3.0
# What a channel may hold: both windows of a stream, a frame, and some air for Python's objects.
MEMORY = 16 * MIB


async def refused_handshake(directory: Path, script: Script, *, seconds: float = 2.0) -> Exception:
    """Connects to a liar; the typed error it ends with, and that it came soon and cheaply."""
    async with fake_agent(directory, script) as (token, _):
        with measured() as cost:
            try:
                channel = await GuestChannel.connect(str(directory), token, seconds=seconds)
            except AgentKernelError as exc:
                error = exc
            else:
                channel.close()
                pytest.fail("the liar was believed")
    assert cost.seconds < seconds + 1
    assert cost.peak < MEMORY
    return error


async def broken_by(directory: Path, send: Callable[[Peer, int], Any]) -> AgentKernelError:
    """Handshake and one exec, then the lie, while nobody reads. Returns why the channel ended."""

    async def script(peer: Peer) -> None:
        await send(peer, await peer.greet_and_open())
        await peer.read_all()

    async with fake_agent(directory, script) as (token, _):
        channel = await GuestChannel.connect(str(directory), token)
        with measured() as cost:
            channel.open("exec", id="x", argv=["true"])
            async with asyncio.timeout(DEADLINE):
                error = await channel.closed
    assert cost.peak < MEMORY, f"{cost.peak >> 20} MiB were held for one stream"
    return error


async def run_against(directory: Path, script: Script) -> GuestProcess:
    """Runs one exec to its end against a liar that has kept the protocol until then."""
    async with fake_agent(directory, script) as (token, _):
        channel = await GuestChannel.connect(str(directory), token)
        process = GuestProcess.start(channel, ["true"], ProcessOptions())
        try:
            async with asyncio.timeout(DEADLINE):
                while await process.output() is not None:
                    pass
        finally:
            channel.close()
    return process


def ending(**body: Any) -> Script:
    async def script(peer: Peer) -> None:
        stream = await peer.greet_and_open()
        await peer.send(map_frame(stream, FrameType.END, body))
        await peer.read_all()

    return script


# -- the handshake ------------------------------------------------------------------------------


async def test_an_honest_agent_is_believed(tmp_path: Path) -> None:
    process = await run_against(tmp_path, ending(outcome="exited", code=7, cpu_us=1))
    assert process.status is not None
    assert (process.status.outcome, process.status.exit_code) == (Outcome.EXITED, 7)


@pytest.mark.parametrize(
    "changes",
    [
        {"proof": b"\0" * 32},
        {"proof": b""},
        {"proof": None},
        {"proof": "x" * 32},
        {"nonce": b"short"},
        {"nonce": b"n" * 4096},
        {"gen": 0},
        {"gen": 2},
        {"gen": [1, 1]},
        {"version": None},
        {"version": b"\xff"},
        {"guard": None},
        {"guard": []},
        {"guard": {"dumpable": 1, "uid": 0, "caps": 0}},
        {"guard": {"dumpable": 2, "uid": 0, "caps": 0}},
        {"guard": {"dumpable": None, "uid": 0, "caps": 0}},
        {"guard": {"uid": 0, "caps": 0}},
        {"guard": {"dumpable": 0, "uid": "0", "caps": 0}},
        {"guard": {"dumpable": 0, "uid": 0}},
    ],
    ids=str,
)
async def test_a_lie_in_hello(tmp_path: Path, changes: dict[str, Any]) -> None:
    error = await refused_handshake(tmp_path, lambda peer: peer.greet(**changes))
    assert isinstance(error, GuestProtocolError)


async def test_wrong_proof_learns_nothing(tmp_path: Path) -> None:
    """Who took the listening socket but has no token gets the host's nonce and nothing more."""
    seen: list[Peer] = []

    async def script(peer: Peer) -> None:
        seen.append(peer)
        await peer.greet(proof=b"p" * 32)
        await peer.read_all()

    await refused_handshake(tmp_path, script)
    assert [kind for _, kind, _ in seen[0].frames] == [FrameType.HELLO]
    assert set(msgspec.msgpack.decode(seen[0].frames[0][2])) == {"gen", "nonce"}


async def test_proof_of_another_connection(tmp_path: Path) -> None:
    """A proof is for one pair of nonces: what was overheard once opens nothing later."""
    overheard: list[dict[str, Any]] = []

    async def script(peer: Peer) -> None:
        nonce = await peer.host_nonce()
        overheard.append(peer.hello(nonce))
        await peer.send(map_frame(0, FrameType.HELLO, overheard[0]))
        await peer.read_all()

    async with fake_agent(tmp_path, script) as (token, _):
        (await GuestChannel.connect(str(tmp_path), token)).close()
        with pytest.raises(GuestProtocolError, match="token"):
            await GuestChannel.connect(str(tmp_path), token)


async def test_the_host_s_own_words_prove_nothing(tmp_path: Path) -> None:
    """Proofs of the two sides differ by label, so neither can be reflected."""

    async def script(peer: Peer) -> None:
        nonce = await peer.host_nonce()
        proof = hmac.digest(peer.token, b"agentkernel host" + nonce + nonce, "sha256")
        await peer.send(map_frame(0, FrameType.HELLO, peer.hello(nonce, nonce=nonce, proof=proof)))
        await peer.read_all()

    assert isinstance(await refused_handshake(tmp_path, script), GuestProtocolError)


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0\0\0",
        b"\4\0\0\0",
        struct.pack("<IIB", 5, 0, 1),
        struct.pack("<IIB", (1 << 20) + 1, 0, 1),
        b"\xff" * 64,
        struct.pack("<IIB", 5, 0, 0),
        struct.pack("<IIB", 5, 0, 7),
        struct.pack("<IIB", 5, 0, 255),
        map_frame(0, FrameType.ERROR, {"code": "generation"}),
        map_frame(0, FrameType.ERROR, {"code": ["generation"], "message": 7}),
        map_frame(1, FrameType.HELLO, {}),
        map_frame(0, FrameType.END, {}),
        map_frame(0, FrameType.OPEN, {"op": "exec"}),
        data_frame(0, Channel.STDOUT, b"x"),
        frame(0, FrameType.HELLO, b"\xc1"),
        frame(0, FrameType.HELLO, b"\x80\x80"),
        frame(0, FrameType.HELLO, b"\x91\x01"),
        frame(0, FrameType.HELLO, b"\x81\xa1a" * 100_000 + b"\xc0"),
        frame(0, FrameType.HELLO, b"\xdf\xff\xff\xff\xff"),
        frame(0, FrameType.HELLO, b"\x81\xa1a\xdd\xff\xff\xff\xff"),
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:20]),
)
async def test_rubbish_instead_of_hello(tmp_path: Path, raw: bytes) -> None:
    error = await refused_handshake(tmp_path, lambda peer: peer.send(raw))
    assert isinstance(error, GuestProtocolError) or "ended" in str(error)


async def test_maps_that_swell(tmp_path: Path) -> None:
    """A megabyte of MessagePack may decode to a hundred: a greeting has no need to be large."""
    swelling = b"\x81\xa1a\xdd" + (MIB - 64).to_bytes(4, "big") + b"\x80" * (MIB - 64)
    await refused_handshake(tmp_path, lambda peer: peer.send(frame(0, FrameType.HELLO, swelling)))


async def test_slow_loris(tmp_path: Path) -> None:
    """One byte now and then keeps a naive deadline from ever coming."""

    async def script(peer: Peer) -> None:
        hello = map_frame(0, FrameType.HELLO, peer.hello(await peer.host_nonce()))
        for byte in hello:
            await peer.send(bytes((byte,)))
            await asyncio.sleep(0.05)

    assert isinstance(await refused_handshake(tmp_path, script, seconds=0.5), GuestTimeoutError)


async def test_silence(tmp_path: Path) -> None:
    error = await refused_handshake(tmp_path, lambda peer: peer.read_all(), seconds=0.3)
    assert isinstance(error, GuestTimeoutError)


async def test_hanging_up(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.host_nonce()

    assert isinstance(await refused_handshake(tmp_path, script), AgentKernelError)


# -- streams ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lie",
    [
        lambda s: frame(s, FrameType.DATA),
        lambda s: frame(s, FrameType.DATA, b"\0in"),
        lambda s: frame(s, FrameType.DATA, b"\4x"),
        lambda s: frame(s, FrameType.DATA, b"\3\xc1"),
        lambda s: frame(s, FrameType.DATA, b"\3\x01"),
        lambda s: frame(s, FrameType.CREDIT, b"\0"),
        lambda s: frame(s, FrameType.CREDIT, b"\0" * 6),
        lambda s: credit_frame(s, Channel.STDOUT, 1),
        lambda s: credit_frame(s, Channel.STDIN, 0xFFFFFFFF),
        lambda s: map_frame(s, FrameType.HELLO, {}),
        lambda s: map_frame(s, FrameType.OPEN, {"op": "exec"}),
        lambda s: frame(s, FrameType.END, b"\x01"),
        lambda s: frame(s, FrameType.ERROR, b"\xc1"),
        lambda s: map_frame(0, FrameType.HELLO, {}),
        lambda s: map_frame(0, FrameType.END, {}),
        lambda s: data_frame(s + 1, Channel.STDOUT, b"x"),
        lambda s: data_frame(s + 2, Channel.STDOUT, b"x"),
        lambda s: data_frame(0xFFFFFFFF, Channel.STDOUT, b"x"),
        lambda s: struct.pack("<IIB", 0, s, 3),
        lambda s: struct.pack("<IIB", 0xFFFFFFFF, s, 3),
        lambda s: struct.pack("<IIB", 5, s, 99),
    ],
)
async def test_a_bad_frame_ends_the_channel(tmp_path: Path, lie: Callable[[int], bytes]) -> None:
    error = await broken_by(tmp_path, lambda peer, stream: peer.send(lie(stream)))
    assert isinstance(error, GuestProtocolError)


@pytest.mark.parametrize("channel", [Channel.STDOUT, Channel.STDERR])
async def test_more_output_than_granted(tmp_path: Path, channel: Channel) -> None:
    async def flood(peer: Peer, stream: int) -> None:
        for _ in range(64):
            await peer.send(data_frame(stream, channel, b"x" * (MIB - 64)))

    assert isinstance(await broken_by(tmp_path, flood), GuestProtocolError)


async def test_as_much_output_as_granted_is_kept(tmp_path: Path) -> None:
    """The control of the flood: the window itself may be filled, and all of it arrives."""

    async def script(peer: Peer) -> None:
        stream = await peer.greet_and_open()
        await peer.send(data_frame(stream, Channel.STDOUT, b"x" * DEFAULT_WINDOW))
        await peer.send(data_frame(stream, Channel.STDERR, b"x" * DEFAULT_WINDOW))
        await peer.send(map_frame(stream, FrameType.END, {"outcome": "exited", "code": 0}))
        await peer.read_all()

    process = await run_against(tmp_path, script)
    assert process.status is not None and process.status.exit_code == 0


@pytest.mark.parametrize(
    "part",
    [
        lambda s: control_frame(s, {"ev": "started", "pid": 1}),
        lambda s: control_frame(s, {"ev": "x" * 200_000}),
        lambda s: control_frame(s, {"ev": [{}] * 200_000}),
        lambda s: data_frame(s, Channel.STDOUT, b""),
        lambda s: data_frame(s, Channel.STDERR, b""),
    ],
    ids=["control", "long control", "swelling control", "empty stdout", "empty stderr"],
)
async def test_messages_without_credit(tmp_path: Path, part: Callable[[int], bytes]) -> None:
    """What is not counted by credit must be bounded otherwise: nobody reads here."""

    async def flood(peer: Peer, stream: int) -> None:
        piece = part(stream)
        piece *= max(1, 65536 // len(piece))
        for _ in range(400):
            await peer.send(piece)

    assert isinstance(await broken_by(tmp_path, flood), GuestProtocolError)


async def test_output_in_single_bytes(tmp_path: Path) -> None:
    """A window of single bytes costs Python far more than a window, but in proportion to it."""
    window = 1 << 15

    async def script(peer: Peer) -> None:
        stream = await peer.greet_and_open()
        await peer.send(data_frame(stream, Channel.STDOUT, b"x") * window)
        await peer.read_all()

    async with fake_agent(tmp_path, script) as (token, _):
        channel = await GuestChannel.connect(str(tmp_path), token)
        with measured() as cost:
            stream = channel.open("exec", window=window, id="x", argv=["true"])
            await eventually(lambda: not stream._granted[Channel.STDOUT], "all of it arrived")
        channel.close()
    assert cost.peak < 512 * window, f"{cost.peak >> 10} KiB for {window >> 10} KiB of output"


async def test_frames_for_an_ended_stream_are_not_kept(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        stream = await peer.greet_and_open()
        await peer.send(map_frame(stream, FrameType.END, {"outcome": "exited", "code": 0}))
        for _ in range(32):
            await peer.send(data_frame(stream, Channel.STDOUT, b"x" * (MIB - 64)))
        await peer.send(map_frame(0, FrameType.END, {}))
        await peer.read_all()

    async with fake_agent(tmp_path, script) as (token, _):
        channel = await GuestChannel.connect(str(tmp_path), token)
        with measured() as cost:
            channel.open("exec", id="x", argv=["true"])
            async with asyncio.timeout(DEADLINE):
                assert isinstance(await channel.closed, GuestProtocolError)
    assert cost.peak < MEMORY


async def test_a_peer_that_grants_but_never_reads(tmp_path: Path) -> None:
    """Credit of two gigabytes does not make us buffer them: the socket's room is what counts."""

    async def script(peer: Peer) -> None:
        stream = await peer.greet_and_open()
        await peer.send(credit_frame(stream, Channel.STDIN, (1 << 31) - (1 << 19)))
        await asyncio.sleep(DEADLINE)

    data = bytes(64 * MIB)
    async with fake_agent(tmp_path, script) as (token, _):
        channel = await GuestChannel.connect(str(tmp_path), token)
        process = GuestProcess.start(channel, ["cat"], ProcessOptions(stdin=True))
        with measured() as cost, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await process.write(data)
                pytest.fail("64 MiB went nowhere")
        channel.close()
    assert cost.peak < MEMORY


# -- the end of a process -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"outcome": "escaped"},
        {"outcome": 1},
        {"outcome": ["exited"]},
        {"outcome": {"exited": 0}},
        {"outcome": "exited"},
        {"outcome": "exited", "code": "0"},
        {"outcome": "exited", "code": -1},
        {"outcome": "exited", "code": 256},
        {"outcome": "exited", "code": 1 << 63},
        {"outcome": "exited", "code": True},
        {"outcome": "exited", "code": 1.0},
        {"outcome": "signaled"},
        {"outcome": "signaled", "signal": 0},
        {"outcome": "signaled", "signal": 65},
        {"outcome": "signaled", "signal": -9},
        {"outcome": "signaled", "signal": True},
        # Only the host can know of these two: agentd may not claim them.
        {"outcome": "oom"},
        {"outcome": "lost"},
    ],
    ids=str,
)
async def test_an_end_that_cannot_be(tmp_path: Path, body: dict[str, Any]) -> None:
    with pytest.raises(GuestProtocolError):
        await run_against(tmp_path, ending(**body))


async def test_absurd_numbers_beside_a_good_end(tmp_path: Path) -> None:
    script = ending(
        outcome="exited", code=0, cpu_us=(1 << 64) - 1, max_rss_kb=-5, out_dropped="many",
        errno="E" * 10_000, stage=["x"],
    )  # fmt: skip
    status = (await run_against(tmp_path, script)).status
    assert status is not None and status.exit_code == 0
    assert status.usage.peak_memory_bytes is status.usage.cpu_seconds is None
    assert status.errno is None or len(status.errno) <= 64


async def test_an_error_is_typed_and_short(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        stream = await peer.greet_and_open()
        body = {"code": "c" * 100_000, "message": "m" * 500_000}
        await peer.send(map_frame(stream, FrameType.ERROR, body))
        await peer.read_all()

    with pytest.raises(AgentKernelError) as caught:
        await run_against(tmp_path, script)
    assert len(str(caught.value.to_dict())) < 2000
