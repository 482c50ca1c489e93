"""The daemon's process: one kernel, its socket, a network's if it was told so, an orderly end.

What must hold: the state lock is taken before anything else and given back last, so whoever holds
it may replace a socket file that a killed daemon left. Sandboxes and jobs do not notice any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import logging.handlers
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from uvicorn import Config
from uvicorn.server import ServerState

from agentkernel import __version__
from agentkernel.audit.entries import Actor
from agentkernel.audit.trail import acting
from agentkernel.errors import HostError, PolicyDeniedError
from agentkernel.kernel.admission import Admission
from agentkernel.kernel.kernel import Kernel
from agentkernel.network.policy.model import TOOLS_SOCKET
from agentkernel.server.app import Service, build_app
from agentkernel.server.door import Entrance, NetworkEntrance, SocketEntrance
from agentkernel.server.guest_door import GuestDoor
from agentkernel.server.handshakes import Handshakes
from agentkernel.server.mounts import Make
from agentkernel.server.network import Listen, Network, listening
from agentkernel.server.previews import Previews
from agentkernel.server.problems import version_header
from agentkernel.server.protocols import HttpProtocol, Peer, WebSocketProtocol
from agentkernel.server.tracing import Watching, spans_of_environment

SOCKET_NAME: Final = "api.sock"
INFO_NAME: Final = "daemon.json"
LOG_NAME: Final = "daemon.log"
MAX_MESSAGE_BYTES: Final = 1 << 20
# What is under way has this long to end by itself, and again as long to take being cancelled.
GRACE_SECONDS: Final = 5.0
_BACKLOG: Final = 1024
_OPEN_FILES: Final = 65536

log = logging.getLogger("agentkernel.server")


Ready = Callable[[str | None], None]


def run(
    state_dir: Path,
    *,
    ready: Ready,
    log_to_file: bool = False,
    listen: Listen | None = None,
    arguments: Sequence[str] = (),
    mounts: Mapping[str, Make] | None = None,
) -> None:
    """Serves until SIGTERM, SIGINT or a request to end; `ready` is told where on a network. Raises
    StateLockedError at once if another process owns the state. `arguments`: what the command line
    said of listening, for `daemon restart` to say again. `mounts`: what higher layers serve, by
    path."""
    _configure_log(state_dir / LOG_NAME if log_to_file else None)
    _raise_open_files()
    _dump_no_core()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(state_dir, ready=ready, listen=listen, arguments=arguments, mounts=mounts))


async def serve(
    state_dir: Path,
    *,
    ready: Ready,
    listen: Listen | None = None,
    arguments: Sequence[str] = (),
    mounts: Mapping[str, Make] | None = None,
) -> None:
    daemon = Actor(door="daemon", uid=os.getuid(), pid=os.getpid())
    with acting(daemon):
        await _serve(state_dir, ready, listen, arguments, mounts)
    log.info("ended")


async def _serve(
    state_dir: Path,
    ready: Ready,
    listen: Listen | None,
    arguments: Sequence[str],
    mounts: Mapping[str, Make] | None,
) -> None:
    async with Kernel(state_dir, admission=Admission.of_user()) as kernel:
        service = Service(kernel, mounts=mounts)
        service.spans = spans_of_environment()
        observers = (service.metrics, service.spans) if service.spans else (service.metrics,)
        kernel.trail.observer = Watching(*observers)
        with contextlib.ExitStack() as stack:
            servers: list[HttpServer | GuestDoor] = [
                HttpServer(service, stack.enter_context(_listening(state_dir, SOCKET_NAME))),
                GuestDoor(service, stack.enter_context(_listening(state_dir, TOOLS_SOCKET))),
            ]
            if listen is not None:
                network = stack.enter_context(listening(listen))
                service.url, service.hosts = network.url, network.hosts
                service.origins = network.origins
                service.preview_domain = listen.preview_domain
                servers.append(HttpServer(service, network.listener, network))
            stack.enter_context(_signals(service))
            for server in servers:
                await server.start()
            with _info(state_dir, service, arguments):
                log.info("serving, pid %d, version %s", os.getpid(), __version__)
                if service.url:
                    log.info("listening on %s", service.url)
                ready(service.url)
                await service.stopping.wait()
                log.info("ending")
            await asyncio.gather(*(server.stop() for server in servers))
        if service.spans:
            await asyncio.to_thread(service.spans.close)


class HttpServer:
    """uvicorn's protocols on one listening socket: the daemon's own, or that of a network. Its own
    Server polls ten times a second and knows nothing of last words."""

    def __init__(
        self, service: Service, listener: socket.socket, network: Network | None = None
    ) -> None:
        self._service = service
        self._listener = listener
        self._tls = network.tls if network else None
        self._bounds = service.bounds
        entrance: Entrance = SocketEntrance()
        if network:
            entrance = NetworkEntrance(service, network.hosts, network.origins)
            most = self._bounds.max_network_connections
            self._bounds = replace(self._bounds, max_connections=most)
        self._previews = Previews(build_app(service, entrance), service, entrance)
        self._config = Config(
            self._previews,
            http=HttpProtocol,
            ws=WebSocketProtocol,
            ws_max_size=MAX_MESSAGE_BYTES,
            # A socket of this machine tells when its other end is gone. A ping would find one dead
            # whose input is not read because its command does not take any.
            ws_ping_interval=None,
            ws_per_message_deflate=False,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=service.bounds.keep_alive_seconds,
        )
        self._config.load()
        self._state = ServerState()
        self._state.default_headers = [version_header()]
        self._server: asyncio.AbstractServer | Handshakes

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._listener.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(
                self._protocol, sock=self._listener, backlog=_BACKLOG
            )
            return
        if self._tls:
            self._server = Handshakes(self._listener, self._tls, self._bounds, self._protocol)
            return
        self._server = await loop.create_server(
            self._protocol, sock=self._listener, backlog=_BACKLOG
        )

    def _protocol(self) -> HttpProtocol:
        protocol = HttpProtocol(
            self._bounds, config=self._config, server_state=self._state, app_state={}
        )
        protocol.on_stranger = self._stranger
        protocol.is_preview = self._previews.claims
        return protocol

    def _stranger(self, peer: Peer) -> None:
        with acting(Actor(door="socket", uid=peer.uid, pid=peer.pid)):
            self._service.kernel.trail.note(
                "connect", result="denied", code=PolicyDeniedError.code, reason="another user"
            )

    async def stop(self) -> None:
        """Takes no one in, lets everyone finish or be told, and returns when nothing is under way.

        Preconditions: `stopping` is set, so what waits for long is ending by itself.
        """
        self._server.close()
        if tasks := list(self._state.tasks):
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for connection in list(self._state.connections):
            connection.shutdown()
        if tasks := list(self._state.tasks):
            log.warning("%d requests are cut off", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        await self._service.cleaned_up()


@contextlib.contextmanager
def _listening(state_dir: Path, name: str) -> Iterator[socket.socket]:
    """The socket, for our uid alone from its first moment. The caller holds the state lock."""
    # Through the directory's descriptor, as a path may have 107 bytes only.
    directory = os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        listener.bind(f"/proc/self/fd/{directory}/{name}")
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as exc:
        listener.close()
        os.close(directory)
        raise HostError(f"the socket can't be made: {state_dir / name}: {exc.strerror}") from None
    finally:
        os.umask(mask)
    try:
        yield listener
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        os.close(directory)
        listener.close()


@contextlib.contextmanager
def _info(state_dir: Path, service: Service, arguments: Sequence[str]) -> Iterator[None]:
    """`daemon.json`: whole or not there, and there only while somebody accepts."""
    path, new = state_dir / INFO_NAME, state_dir / f"{INFO_NAME}.new"
    body = {
        "pid": os.getpid(),
        "version": __version__,
        "started_at": service.started_at,
        "url": service.url,
        "arguments": list(arguments),
    }
    new.touch(mode=0o600)
    new.write_bytes(msgspec.json.encode(body) + b"\n")
    os.replace(new, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _signals(service: Service) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = (signal.SIGTERM, signal.SIGINT)
    for number in handled:
        loop.add_signal_handler(number, service.stop_asked)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _configure_log(path: Path | None) -> None:
    """Warnings of the libraries and our own notes; never a request's content."""
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler()
    else:
        path.touch(mode=0o600)
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=1 << 20, backupCount=3)
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    log.setLevel(logging.INFO)


def _dump_no_core() -> None:
    """There are secrets in memory. One byte, not none: a program that takes dumps through a pipe is
    called with a limit of 0 all the same, and not with 1, which is too little for a file, too."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (min(1, hard) if hard >= 0 else 1, hard))


def _raise_open_files() -> None:
    """Every sandbox and every client is a descriptor or two; 1024 are soon gone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
