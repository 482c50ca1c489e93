"""Daemons at an address: what the environment says, TLS, tokens, and what stays on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel import AsyncSandbox, Host, Sandbox, Transport
from agentkernel.errors import (
    DaemonError,
    InvalidInputError,
    NotFoundError,
    PolicyDeniedError,
    UnauthenticatedError,
    UnsupportedError,
)


class Served:
    """A daemon with `--listen`, in a process of its own."""

    def __init__(self, state: Path, *arguments: str) -> None:
        self.state = state
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentkernel", "serve", "--foreground", "--listen",
             "127.0.0.1:0", *arguments],
            env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout
        self.url = self.process.stdout.readline().partition(" and ")[2].partition(",")[0]
        assert self.url
        self.local = Transport(str(state))
        made = Host(transport=self.local).tokens.create("one")
        assert made.token
        self.token = made.token

    def end(self) -> None:
        for sandbox in Sandbox.list(owner="*", transport=self.local):
            sandbox.remove()
        self.local.close()
        self.process.terminate()
        assert self.process.wait(30) == 0
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    served.end()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate can be made")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out",
         folder / "cert.pem"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def encrypted(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(
        tmp_path_factory.mktemp("encrypted"),
        *("--tls-cert", str(certificate / "cert.pem"), "--tls-key", str(certificate / "key.pem")),
    )
    yield served
    served.end()


@pytest.fixture
def environment(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.MonkeyPatch]:
    """As a user has it who works with a daemon elsewhere; no daemon of their own is started."""
    monkeypatch.setenv("AGENTKERNEL_URL", served.url)
    monkeypatch.setenv("AGENTKERNEL_TOKEN", served.token)
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "own"))
    yield monkeypatch
    assert not (tmp_path / "own" / "api.sock").exists(), "a daemon was started here"


def cli(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agentkernel", *words],
        capture_output=True, text=True, timeout=50, check=False, input="", **options,
    )  # fmt: skip


def test_the_sdk_goes_where_the_environment_says(environment: pytest.MonkeyPatch) -> None:
    with Sandbox.create() as sandbox:
        assert sandbox.info.raw["owner"] == "token:one"
        assert sandbox.exec("echo there").stdout == "there\n"
        sandbox.files.write("/tmp/a", b"x" * 300_000)
        assert sandbox.files.read_bytes("/tmp/a") == b"x" * 300_000
        with sandbox.stream(["cat"], stdin=True) as stream:
            stream.write(b"in and out")
            stream.close_stdin()
            assert "".join(chunk.text for chunk in stream) == "in and out"


async def test_the_other_sdk_too(environment: pytest.MonkeyPatch) -> None:
    async with await AsyncSandbox.create() as sandbox:
        results = await asyncio.gather(*(sandbox.exec(f"echo {n}") for n in range(8)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(8)]


def test_the_command_line_goes_there(environment: pytest.MonkeyPatch) -> None:
    done = cli("run", "--", "sh", "-c", "echo far; exit 3")
    assert (done.returncode, done.stdout) == (3, "far\n"), done.stderr
    assert cli("sandbox", "create", "box").stdout == "box\n"
    assert cli("exec", "box", "--", "echo", "inside").stdout == "inside\n"
    assert "box" in cli("sandbox", "list").stdout
    status = json.loads(cli("daemon", "status", "--json").stdout)
    assert status["running"] and status["state_dir"] is None
    assert cli("sandbox", "remove", "box").returncode == 0
    for words in (("daemon", "restart"), ("daemon", "logs")):
        done = cli(*words)
        assert done.returncode == 125 and "from here" in done.stderr
    done = cli("daemon", "stop")
    assert done.returncode == 125 and "admin" in done.stderr


def test_nobody_there_is_said(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AGENTKERNEL_URL", "http://127.0.0.1:1")
    done = cli("daemon", "status")
    assert (done.returncode, done.stdout) == (1, "nobody answers at http://127.0.0.1:1\n")
    done = cli("run", "--", "true")
    assert done.returncode == 125 and "no daemon answers at http://127.0.0.1:1" in done.stderr


def test_tls(
    encrypted: Served, certificate: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = encrypted.url.replace("127.0.0.1", "localhost")
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path))
    with pytest.raises(DaemonError, match="not one to be trusted") as refused:
        Sandbox.list(transport=Transport(url=url, token=encrypted.token))
    assert refused.value.hint and "AGENTKERNEL_CA" in refused.value.hint
    monkeypatch.setenv("AGENTKERNEL_CA", str(certificate / "cert.pem"))
    transport = Transport(url=url, token=encrypted.token)
    with Sandbox.create(transport=transport) as sandbox:
        data = os.urandom(3 << 20)
        sandbox.files.write("/tmp/a", data)
        assert sandbox.files.read_bytes("/tmp/a") == data
        assert sandbox.exec("echo x").stdout == "x\n"
    transport.close()
    # The name has to be the certificate's.
    wrong = Transport(url=encrypted.url, token=encrypted.token)
    with pytest.raises(DaemonError, match="not one to be trusted"):
        Sandbox.list(transport=wrong)
    monkeypatch.setenv("AGENTKERNEL_URL", url)
    monkeypatch.setenv("AGENTKERNEL_TOKEN", encrypted.token)
    done = cli("run", "--", "sh", "-c", "cat; echo encrypted")
    assert (done.returncode, done.stdout) == (0, "encrypted\n"), done.stderr


def test_a_socket_can_be_named(served: Served, tmp_path: Path) -> None:
    transport = Transport(url=f"unix:{served.state / 'api.sock'}")
    assert Sandbox.run("echo near", transport=transport).stdout == "near\n"
    transport.close()
    nowhere = Transport(url=f"unix:{tmp_path / 'nothing'}")
    with pytest.raises(DaemonError, match="no daemon answers at unix:"):
        Sandbox.list(transport=nowhere)


def test_errors_are_those_of_the_daemon(served: Served) -> None:
    transport = Transport(url=served.url, token=served.token)
    with pytest.raises(NotFoundError):
        Sandbox.connect("nobody", transport=transport)
    with pytest.raises(PolicyDeniedError):
        Host(transport=transport).tokens.list()
    transport.close()
    for token in (None, "ak_x", "ak_" + "0" * 20 + "_" + "0" * 64):
        with pytest.raises(UnauthenticatedError):
            Sandbox.list(transport=Transport(url=served.url, token=token))
    with pytest.raises(DaemonError, match="no daemon answers at"):
        Sandbox.list(transport=Transport(url="http://127.0.0.1:1"))
    with pytest.raises(UnsupportedError):
        Transport(url=served.url).daemon.start()


def test_tokens_by_the_sdk(served: Served) -> None:
    tokens = Host(transport=served.local).tokens
    made = tokens.create("sdk", scopes=["read"], expires_seconds=60)
    assert made.token and made.scopes == ["read"] and made.owner == "token:sdk"
    assert [t.token for t in tokens.list() if t.name == "sdk"] == [None]
    transport = Transport(url=served.url, token=made.token)
    assert Sandbox.list(transport=transport) == []
    assert tokens.revoke("sdk").revoked_at is not None
    with pytest.raises(UnauthenticatedError):
        Sandbox.list(transport=transport)
    transport.close()


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "ftp://a", "http://", "http://host:99999", "http://host/path", "http://h?x=1",
     "https://user:secret@host", "http://[::1"],
)  # fmt: skip
def test_addresses_that_are_none(url: str) -> None:
    if not url:
        assert Transport(url=url).daemon.state_dir  # as if nothing was said
        return
    with pytest.raises(InvalidInputError) as refused:
        Transport(url=url)
    assert "secret" not in str(refused.value)


def test_a_token_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for token in ("a b", "a\r\nX: y", "ü"):
        with pytest.raises(InvalidInputError):
            Transport(url="http://localhost:1", token=token)


def test_no_clear_text_beyond_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PolicyDeniedError, match="clear text"):
        Transport(url="http://192.0.2.1:80", token="x")
    monkeypatch.setenv("AGENTKERNEL_INSECURE_HTTP", "1")
    assert Transport(url="http://192.0.2.1:80", token="x").daemon.headers["Host"] == "192.0.2.1:80"


def test_what_is_where_on_this_machine_is_not_told() -> None:
    """A listener that writes down what it is sent; the control is the same daemon by its socket."""
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                while b"\r\n\r\n" not in received or not received.endswith(b"}"):
                    data = connection.recv(65536)
                    if not data:
                        return
                    received.extend(data)

        thread = threading.Thread(target=answer)
        thread.start()
        transport = Transport(url=f"http://127.0.0.1:{port}", token="secret-token")
        with pytest.raises(DaemonError):
            Sandbox.run("true", transport=transport)
        thread.join(30)
    assert b"Authorization: Bearer secret-token" in received
    body = json.loads(bytes(received).partition(b"\r\n\r\n")[2])
    assert not body.get("host_env")
    from agentkernel.client.daemon import Daemon
    from agentkernel.client.toolchains import host_environment

    assert host_environment(Daemon("/tmp"))["PATH"]
