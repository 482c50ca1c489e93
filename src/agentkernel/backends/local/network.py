"""The way out of a sandbox, as the host holds it: sockets that were made in its namespace.

The launcher makes them with the sandbox; later `agentd network` enters the namespace and makes
them again. Either hands them over by a socket pair. What was under way when a launch failed goes
with the pair: the kernel closes descriptors that nobody has taken.
"""

from __future__ import annotations

import os
import socket
from types import TracebackType

from agentkernel.backends.base import NetworkSockets
from agentkernel.backends.local.launcher import LaunchFailure, run_verb
from agentkernel.backends.local.refusals import BadAnswer, read_counters, unreachable_ipv6
from agentkernel.errors import AgentKernelError, HostError, NetworkUnavailableError

_ENTER_DEADLINE_S = 10.0
_MOST_DESCRIPTORS = 3


class Handover:
    """A socket pair: `launcher` goes to agentd, `receive` takes what came back."""

    def __init__(self) -> None:
        self._ours, self.launcher = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC
        )
        self._ours.setblocking(False)

    def __enter__(self) -> Handover:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ours.close()
        self.launcher.close()

    def receive(self, count: int) -> list[socket.socket]:
        """Exactly `count` sockets, which agentd has sent before it ended or went on."""
        try:
            byte, fds, flags, _ = socket.recv_fds(self._ours, 1, _MOST_DESCRIPTORS)
        except BlockingIOError:
            raise LaunchFailure("network-send", 0, "no sockets came") from None
        if byte != b"n" or flags & socket.MSG_CTRUNC or len(fds) != count:
            for fd in fds:
                os.close(fd)
            raise LaunchFailure("network-send", 0, f"{len(fds)} sockets came")
        return [socket.socket(fileno=fd) for fd in fds]

    def receive_network(self) -> NetworkSockets:
        tcp, names, rules = self.receive(3)
        return NetworkSockets(tcp=tcp, names=names, rules=rules)


async def open_sockets(agentd: str, pid: int) -> NetworkSockets:
    """New ones, for the sandbox whose process is `pid`, with rules if it has none. Raises
    LaunchFailure."""
    with Handover() as handover:
        await _enter(agentd, handover, pid)
        return handover.receive_network()


async def open_rules(agentd: str, pid: int) -> socket.socket:
    """A netlink socket of the namespace and nothing else. Raises LaunchFailure."""
    with Handover() as handover:
        await _enter(agentd, handover, pid, "rules")
        return handover.receive(1)[0]


async def _enter(agentd: str, handover: Handover, pid: int, *words: str) -> None:
    await run_verb(
        agentd,
        "network",
        handover.launcher.fileno(),
        words=(str(pid), *words),
        seconds=_ENTER_DEADLINE_S,
    )


def count_refusals(rules: socket.socket, pid: int) -> dict[str, int]:
    """Packets refused so far, by kind: asked of the kernel, which never lets us wait. Raises
    AgentKernelError."""
    try:
        counted = read_counters(rules)
    except OSError as exc:
        raise HostError(
            f"the rules of the sandbox's network can't be read: {exc.strerror or exc}"
        ) from None
    except BadAnswer as exc:
        raise AgentKernelError(f"the rules of the sandbox's network can't be read: {exc}") from None
    return {**counted, "ipv6": unreachable_ipv6(pid)}


def explain_network(failure: LaunchFailure) -> NetworkUnavailableError | None:
    """Why a sandbox can have no network here; None: the stage is none of ours."""
    why = os.strerror(failure.errno) if failure.errno else "it broke off"
    if failure.stage == "network-rules":
        return NetworkUnavailableError(
            f"the kernel has no nf_tables, or not all that is needed of it ({failure.detail}: "
            f"{why}): without rules there is no network",
            hint="load the modules nf_tables, nft_ct, nft_limit, nft_nat, nft_redir and nft_reject "
            "(`sudo modprobe -a …`), or use --network none",
        )
    if failure.stage == "network-enter":
        return NetworkUnavailableError(
            f"the sandbox's network namespace can't be entered: {why}",
            hint="stop the sandbox and start it again",
        )
    if failure.stage.startswith("network-"):
        words = f"{failure.stage.removeprefix('network-')} {failure.detail}".strip()
        return NetworkUnavailableError(
            f"the sandbox's network can't be set up ({words}: {why})",
            hint="stop the sandbox and start it again, or use --network none",
        )
    return None
