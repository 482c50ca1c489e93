"""The door to a network: by which name, from which page, with which token, how often; and TLS."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from .daemon_process import SECONDS, Daemon, eventually
from .network_process import Caller, NetworkDaemon

PAGE = "https://app.example.org"


@pytest.fixture
def caller(network_daemon: NetworkDaemon) -> Caller:
    return network_daemon.caller("caller")


def refused_stream(caller: Caller, **options: Any) -> tuple[int, bytes]:
    with pytest.raises(InvalidStatus) as refused:
        caller.stream("/v1/run/stream", **options)
    return refused.value.response.status_code, bytes(refused.value.response.body or b"")


def test_a_token_is_all_that_is_needed(caller: Caller) -> None:
    status, body = caller.request("GET", "/v1/version")
    assert (status, body["url"]) == (200, caller.daemon.url)
    assert body["state_dir"] is None, "a path of the daemon's machine"
    out, _, ended = caller.stream("/v1/run/stream", {"command": {"shell": "echo hi"}}).rest()
    assert (out, ended["exit_code"]) == (b"hi\n", 0)


@pytest.mark.parametrize(
    "shown",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Basic dXNlcjpwYXNz",
        "Bearer ak_00000000000000000000_" + "0" * 64,
        "Bearer ak_00000000000000000000_" + "ü" * 64,
    ],
)
@pytest.mark.parametrize("path", ["/v1/version", "/v1/nothing", "/", "/metrics", "/mcp"])
def test_without_a_token_nothing_is_served(
    network_daemon: NetworkDaemon, shown: str | None, path: str
) -> None:
    nobody = Caller(network_daemon, None)
    headers = {} if shown is None else {"Authorization": shown.encode().decode("latin-1")}
    status, told, body = nobody.ask("GET", path, headers=headers)
    assert status in (401, 429)
    if status == 401:
        assert told["www-authenticate"] == 'Bearer realm="agentkernel"'
        assert b'"unauthenticated"' in body
    else:
        assert int(told["retry-after"]) >= 1 and b'"rate_limited"' in body


def test_the_right_id_with_a_wrong_secret_is_refused(caller: Caller) -> None:
    assert caller.token
    wrong = Caller(caller.daemon, caller.token[:-1] + ("0" if caller.token[-1] != "0" else "1"))
    assert wrong.request("GET", "/v1/version")[0] in (401, 429)
    assert caller.request("GET", "/v1/version")[0] == 200


def test_two_tokens_are_none(caller: Caller) -> None:
    with caller.raw() as connection:
        line = f"Authorization: Bearer {caller.token}\r\n"
        connection.sendall(
            f"GET /v1/version HTTP/1.1\r\nHost: {caller.host}\r\n{line}{line}\r\n".encode()
        )
        assert b" 403 " in connection.recv(65536).split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("localhost:{port}", True),
        ("127.0.0.1:{port}", True),
        ("[::1]:{port}", True),
        ("LOCALHOST:{port}", True),
        ("ak.example.org", True),
        ("ak.example.org:443", True),
        ("localhost", False),
        ("localhost:1", False),
        ("evil.example", False),
        ("evil.example:{port}", False),
        ("localhost.evil.example:{port}", False),
        ("localhost:{port}.evil.example", False),
        ("ak.example.org.evil.example", False),
        ("ak.example.org@evil.example", False),
        ("0.0.0.0:{port}", False),
        ("", False),
    ],
)
def test_the_daemon_is_called_by_its_name(caller: Caller, host: str, served: bool) -> None:
    name = host.format(port=caller.daemon.port)
    status, body = caller.request("GET", "/v1/version", headers={"Host": name})
    assert status == (200 if served else 403), body
    if not served:
        assert body["code"] == "policy_denied" and "--allow-host" in body["hint"]


def test_a_wrong_name_opens_no_stream(caller: Caller) -> None:
    headers = [("Authorization", f"Bearer {caller.token}"), ("Host", "evil.example")]
    status, body = refused_stream(caller, additional_headers=headers)
    assert status == 403 and b'"policy_denied"' in body


def test_a_request_without_a_host_is_refused(caller: Caller) -> None:
    with caller.raw() as connection:
        head = f"GET /v1/version HTTP/1.0\r\nAuthorization: Bearer {caller.token}\r\n\r\n"
        connection.sendall(head.encode())
        assert b" 403 " in connection.recv(65536).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "", "http://app.example.org", f"{PAGE}.evil.example",
     f"{PAGE}/", "file://", "http://localhost:1"],
)  # fmt: skip
def test_other_pages_are_refused_whatever_they_have(caller: Caller, origin: str) -> None:
    status, told, body = caller.ask("GET", "/v1/version", headers={"Origin": origin})
    assert status == 403 and b'"policy_denied"' in body
    assert not [name for name in told if name.startswith("access-control")]
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    status, told, _ = caller.ask("OPTIONS", "/v1/run", headers=preflight)
    assert status == 403 and not [name for name in told if name.startswith("access-control")]
    if origin:
        assert refused_stream(caller, origin=origin)[0] == 403


def test_a_page_that_is_allowed_is_served_with_a_token(caller: Caller) -> None:
    status, told, _ = caller.ask("GET", "/v1/version", headers={"Origin": PAGE})
    assert (status, told["access-control-allow-origin"], told["vary"]) == (200, PAGE, "Origin")
    assert "access-control-allow-credentials" not in told
    nobody = Caller(caller.daemon, None)
    status, told, _ = nobody.ask("GET", "/v1/version", headers={"Origin": PAGE})
    assert status in (401, 429)
    assert told["access-control-allow-origin"] == PAGE, "the page has to see why"
    preflight = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    status, told, body = nobody.ask("OPTIONS", "/v1/run", headers=preflight)
    assert (status, body) == (204, b"")
    assert told["access-control-allow-origin"] == PAGE
    assert "authorization" in told["access-control-allow-headers"]
    status, told, _ = nobody.ask("OPTIONS", "/v1/run", headers={**preflight, "Host": "evil"})
    assert status == 403 and "access-control-allow-origin" not in told


def test_no_page_is_served_on_the_socket(network_daemon: NetworkDaemon) -> None:
    status, body = network_daemon.request("GET", "/v1/version", headers={"Origin": PAGE})
    assert (status, body["code"]) == (403, "policy_denied")


def test_a_page_shows_its_token_as_a_protocol(caller: Caller) -> None:
    first = {"command": {"shell": "echo page"}}
    protocols = [f"bearer.{caller.token}", "agentkernel.v1"]
    page: dict[str, Any] = {"additional_headers": {}, "origin": PAGE, "subprotocols": protocols}
    stream = caller.stream("/v1/run/stream", first, **page)
    assert stream.connection.subprotocol == "agentkernel.v1", "never the token"
    assert stream.rest()[0] == b"page\n"
    stream.close()
    # Whoever is no page has headers for it.
    for change in ({"origin": None}, {"subprotocols": ["bearer.x", "agentkernel.v1"]}):
        assert refused_stream(caller, **{**page, **change})[0] in (401, 429)


def test_who_somebody_is_says_the_token_alone(caller: Caller) -> None:
    for owner in ("local", "token:other"):
        headers = {"Agentkernel-Owner": owner}
        status, body = caller.request("GET", "/v1/sandboxes", headers=headers)
        assert (status, body["code"]) == (403, "policy_denied")


def test_a_token_that_comes_too_often_has_to_wait(network_daemon: NetworkDaemon) -> None:
    busy, quiet = network_daemon.caller("busy"), network_daemon.caller("quiet")
    one = f"GET /v1/version HTTP/1.1\r\nHost: {busy.host}\r\nAuthorization: Bearer {busy.token}"
    with busy.raw() as connection:
        connection.sendall((one + "\r\n\r\n").encode() * 1000)
        connection.sendall((one + "\r\nConnection: close\r\n\r\n").encode())
        told = b""
        while data := connection.recv(1 << 20):
            told += data
    assert told.count(b"HTTP/1.1 200") >= 400
    assert b"HTTP/1.1 429" in told and b"retry-after: 1\r\n" in told
    assert b'"rate_limited"' in told and b'"retryable":true' in told
    assert quiet.request("GET", "/v1/version")[0] == 200


def test_failures_do_not_hold_up_who_has_a_token(caller: Caller) -> None:
    nobody = Caller(caller.daemon, None)
    statuses = [nobody.ask("GET", "/v1/version")[0] for _ in range(40)]
    assert 429 in statuses and set(statuses) <= {401, 429}
    assert caller.request("GET", "/v1/version")[0] == 200


def test_who_vanishes_ends_what_they_began(caller: Caller) -> None:
    """Over a network nobody tells while nothing is read: the end of a connection is looked for."""
    stream = caller.stream("/v1/run/stream", {"command": {"argv": ["sleep", "60"], "stdin": True}})
    stream.event("started")
    for _ in range(3):
        stream.send(b"x" * 65536)
    stream.vanish()
    everybody = "/v1/sandboxes?owner=*"
    eventually(lambda: not caller.daemon.request("GET", everybody)[1]["sandboxes"])


# -- where, and with which key ----------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, signed by itself, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate can be made")
    folder = tmp_path_factory.mktemp("tls")
    path = folder / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "key.pem",
         "-out", folder / "cert.pem"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    path.write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
    return path


@pytest.fixture
def tls_daemon(tmp_path: Path, certificate: Path) -> Iterator[NetworkDaemon]:
    daemon = NetworkDaemon(tmp_path / "state", "--tls-cert", str(certificate))
    daemon.start()
    yield daemon
    daemon.remove_all()
    assert daemon.terminate() == 0
    assert "Traceback" not in daemon.log()
    daemon.close()


@pytest.fixture(autouse=True)
def state(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()


def test_previews_over_tls(tls_daemon: NetworkDaemon, certificate: Path) -> None:
    """Their cookie is for TLS alone; a WebSocket, and an answer that ends with its connection."""
    id = tls_daemon.create(ephemeral=True, ports=["preview:8000"])
    source = (Path(__file__).parent / "guest_server.py").read_text()
    argv = ["python3", "-c", source, "8000"]
    tls_daemon.request("POST", f"/v1/sandboxes/{id}/jobs", {"argv": argv})
    [port] = tls_daemon.request("GET", f"/v1/sandboxes/{id}/ports")[1]["ports"]
    assert port["preview_url"].startswith(f"https://8000-{id}.localhost:")
    caller = Caller(tls_daemon, None, ssl.create_default_context(cafile=str(certificate)))
    shown = {"X-Agentkernel-Preview-Token": port["token"]}
    host = {"Host": f"8000-{id}.localhost"}
    eventually(lambda: caller.ask("GET", "/go", headers={**host, **shown})[0] == 200)
    enter = f"/?ak_preview_token={port['token']}"
    told = caller.ask("GET", enter, headers={**host, "Accept": "text/html"})[1]
    assert "Secure" in told["set-cookie"]
    assert caller.ask("GET", "/sse", headers={**host, **shown})[2].endswith(b"data: two\n\n")
    with connect(
        f"wss://localhost:{tls_daemon.port}/preview/{id}/8000/ws",
        ssl=caller.tls,
        additional_headers=shown,
        compression=None,
    ) as frames:
        frames.send("x" * 100_000)
        assert frames.recv(SECONDS) == "x" * 100_000


def test_tls(tls_daemon: NetworkDaemon, certificate: Path) -> None:
    assert tls_daemon.url.startswith("https://")
    trusting = ssl.create_default_context(cafile=str(certificate))
    caller = Caller(tls_daemon, tls_daemon.token("one"), trusting)
    assert caller.request("GET", "/v1/version")[0] == 200
    assert caller.request("POST", "/v1/run", {"shell": "echo x"})[1]["stdout"] == "x\n"
    assert caller.request("GET", "/v1/version", headers={"Host": "evil"})[0] == 403
    with pytest.raises(ssl.SSLCertVerificationError):
        Caller(tls_daemon, caller.token, ssl.create_default_context()).request("GET", "/v1/version")
    with caller.raw() as connection:
        connection.sendall(b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP/1.1" not in connection.recv(1000), "in clear text nothing is said"
    old = ssl.create_default_context(cafile=str(certificate))
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.deprecated_call():
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError):
        Caller(tls_daemon, caller.token, old).request("GET", "/v1/version")


def test_handshakes_are_bounded_in_number_and_time(
    tls_daemon: NetworkDaemon, certificate: Path
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))
    caller = Caller(tls_daemon, tls_daemon.token("one"), trusting)
    assert caller.request("GET", "/v1/version")[0] == 200
    before = tls_daemon.descriptors()
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            stack.enter_context(caller.raw())
        eventually(lambda: tls_daemon.descriptors() <= before + 256)
        assert tls_daemon.request("GET", "/v1/version")[0] == 200
        # We hold our ends, and their time is over.
        eventually(lambda: tls_daemon.descriptors() <= before)
        assert caller.request("GET", "/v1/version")[0] == 200


def test_garbage_instead_of_a_handshake(tls_daemon: NetworkDaemon) -> None:
    caller = Caller(tls_daemon, None)
    for data in (b"\0" * 100, b"\x16\x03\x01\xff\xff" + b"x" * 70000, os.urandom(4096), b"\x80"):
        with caller.raw() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    assert tls_daemon.request("GET", "/v1/version")[0] == 200


def attempt(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`serve` where it is expected to be refused."""
    daemon = Daemon(state)
    process = daemon.popen(*arguments)
    out, _ = process.communicate(timeout=50)
    daemon.close()
    return subprocess.CompletedProcess(arguments, process.returncode, out, daemon.log())


def test_beyond_this_machine_there_is_no_clear_text(tmp_path: Path) -> None:
    done = attempt(tmp_path / "state", "--listen", "0.0.0.0:0")
    assert done.returncode == 125
    assert "in clear text" in done.stderr and "--insecure-http" in done.stderr


def test_control_who_insists_listens_there(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "state")
    process = daemon.popen("--listen", "0.0.0.0:0", "--insecure-http")
    assert process.stdout and "http://0.0.0.0:" in process.stdout.readline()
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()
    daemon.close()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--listen", "nowhere"], 2, "is not an address such as"),
        (["--listen", "127.0.0.1:70000"], 2, "is not an address such as"),
        (["--listen", "192.0.2.1:0", "--insecure-http"], 125, "can't be listened on"),
        (["--listen", "127.0.0.1:0", "--tls-cert", "/nowhere"], 125, "can't be used"),
        (["--listen", "127.0.0.1:0", "--tls-key", "/nowhere"], 125, "needs its certificate"),
        (["--listen", "127.0.0.1:0", "--allow-origin", "app"], 2, "is not an origin"),
        (["--listen", "127.0.0.1:0", "--allow-origin", "*"], 2, "is not an origin"),
        (["--listen", "127.0.0.1:0", "--allow-host", "*"], 2, "is not a name"),
        (["--allow-host", "ak.example.org"], 125, "there is no --listen"),
    ],
)
def test_what_can_not_be_listened_on_is_said(
    tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    done = attempt(tmp_path / "state", *arguments)
    assert (done.returncode, words in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_said(tmp_path: Path, network_daemon: NetworkDaemon) -> None:
    done = attempt(tmp_path / "state", "--listen", f"127.0.0.1:{network_daemon.port}")
    assert done.returncode == 125 and "Address already in use" in done.stderr


def test_the_users_file_says_where_to_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "state"))

    def cli(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "agentkernel", *words],
            capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip

    assert cli("config", "set", "daemon.listen", "127.0.0.1:0").returncode == 0
    assert cli("config", "set", "daemon.allow_hosts", "a.example,b.example").returncode == 0
    try:
        assert cli("sandbox", "list").returncode == 0  # which starts the daemon
        shown = cli("daemon", "status").stdout
        assert "listens    http://127.0.0.1:" in shown
        assert cli("daemon", "restart").returncode == 0
        assert "listens    http://127.0.0.1:" in cli("daemon", "status").stdout
        # What the file does not say any more does not hold any more.
        assert cli("config", "unset", "daemon.listen").returncode == 0
        assert cli("daemon", "restart").returncode == 0
        assert "listens" not in cli("daemon", "status").stdout
    finally:
        cli("daemon", "stop")


def test_a_restart_listens_where_it_was_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "state"))

    def cli(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "agentkernel", *words],
            capture_output=True, text=True, timeout=50, check=True,
        )  # fmt: skip
        return done.stdout

    told = cli("serve", "--listen", "127.0.0.1:0", "--allow-host", "a.example")
    try:
        assert " and http://127.0.0.1:" in told
        cli("daemon", "restart")
        assert "listens    http://127.0.0.1:" in cli("daemon", "status")
    finally:
        cli("daemon", "stop")
