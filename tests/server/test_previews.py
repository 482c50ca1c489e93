"""Previews of real servers in real sandboxes: what passes, what does not, and who sees what."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect, unix_connect

from .daemon_process import SECONDS, eventually
from .network_process import Caller, NetworkDaemon

SERVER = (Path(__file__).parent / "guest_server.py").read_text()
PORTS = (8000, 8001, 8002)


class Site(NamedTuple):
    """A sandbox with the server of `guest_server` on three ports, of which two are published:
    8000 with a token, 8001 for everybody."""

    daemon: NetworkDaemon
    id: str
    token: str

    def host(self, port: int = 8000) -> str:
        return f"{port}-{self.id}.localhost:{self.daemon.port}"

    def ask(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        host: str | None = None,
        method: str = "GET",
        body: Any = None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """By host, unless another Host is given; without any credential that is not given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=SECONDS)
        try:
            told = {"Host": host or self.host(), **(headers or {})}
            connection.request(method, path, body, told)
            answer = connection.getresponse()
            return answer.status, answer.msg, answer.read()
        finally:
            connection.close()

    def seen(
        self, path: str = "/headers", headers: dict[str, str] | None = None, **how: Any
    ) -> Any:
        """What the guest was sent, with the token unless headers say otherwise."""
        shown = {"X-Agentkernel-Preview-Token": self.token} if headers is None else headers
        status, _, body = self.ask(path, shown, **how)
        assert status == 200, body
        return json.loads(body)

    @property
    def own(self) -> str:
        return f"localhost:{self.daemon.port}"


@pytest.fixture(scope="module")
def site(shared_network_daemon: NetworkDaemon) -> Iterator[Site]:
    daemon = shared_network_daemon
    id = daemon.create(ephemeral=True, ports=["preview:8000"])
    status, made = daemon.request(
        "POST", f"/v1/sandboxes/{id}/ports", {"port": "preview:8001", "public": True}
    )
    assert status == 201, made
    argv = ["python3", "-c", SERVER, *map(str, PORTS)]
    daemon.request("POST", f"/v1/sandboxes/{id}/jobs", {"argv": argv})
    _, listed = daemon.request("GET", f"/v1/sandboxes/{id}/ports")
    site = Site(daemon, id, listed["ports"][0]["token"])
    eventually(lambda: site.ask("/", host=site.host(8001))[0] == 200)
    yield site
    daemon.request("DELETE", f"/v1/sandboxes/{id}")
    assert "Traceback" not in daemon.log(), daemon.log()
    assert "never retrieved" not in daemon.log()


def names(seen: dict[str, Any]) -> dict[str, str]:
    return {name.lower(): value for name, value in seen["headers"]}


# -- the three ways --------------------------------------------------------------------------------


def test_by_host(site: Site) -> None:
    seen = site.seen("/a%2Fb/../c?x=1&y=%00")
    assert seen["target"] == "/a%2Fb/../c?x=1&y=%00"
    assert names(seen)["host"] == site.host()
    assert names(seen)["x-forwarded-host"] == site.host()


def test_by_path_and_by_header(site: Site) -> None:
    token = {"X-Agentkernel-Preview-Token": site.token}
    seen = site.seen(f"/preview/{site.id}/8000/a/b?c=d", token, host=site.own)
    assert (seen["target"], names(seen)["host"]) == ("/a/b?c=d", "localhost:8000")
    assert names(seen)["x-forwarded-prefix"] == f"/preview/{site.id}/8000"
    header = {"X-Agentkernel-Preview": f"8000-{site.id}", **token}
    assert site.seen("/v1/version", header, host=site.own)["target"] == "/v1/version"
    status, told, _ = site.ask(f"/preview/{site.id}/8000?q=1", token, host=site.own)
    assert (status, told["Location"]) == (307, f"/preview/{site.id}/8000/?q=1")
    status, told, _ = site.ask(f"/preview/{site.id}/8000/redirect", token, host=site.own)
    assert (status, told["Location"]) == (302, f"/preview/{site.id}/8000/elsewhere")
    status, _, body = site.ask("/", {"X-Agentkernel-Preview": "8000"}, host=site.own)
    assert status == 400, body


def test_on_the_socket(site: Site) -> None:
    """Whoever has the socket is the user; somebody else's sandbox is not there for an owner."""
    status, body = site.daemon.request("GET", f"/preview/{site.id}/8000/x")
    assert (status, body["target"]) == (200, "/x")
    status, body = site.daemon.request(
        "GET", f"/preview/{site.id}/8000/x", headers={"Agentkernel-Owner": "mcp:somebody"}
    )
    assert status == 404, body
    page = {"Origin": "http://localhost:8700"}  # of a socket that was forwarded
    assert site.daemon.request("GET", f"/preview/{site.id}/8000/x", headers=page)[0] == 401
    # By host the token is asked for, as behind whatever forwards to the socket.
    host = {"Host": f"8000-{site.id}.localhost"}
    assert site.daemon.request("GET", "/x", headers=host)[0] == 401
    host["X-Agentkernel-Preview-Token"] = site.token
    assert site.daemon.request("GET", "/x", headers=host)[0] == 200


# -- who may ---------------------------------------------------------------------------------------


def test_a_preview_asks_for_its_token(site: Site) -> None:
    assert site.ask("/")[0] == 401
    assert site.ask("/", {"X-Agentkernel-Preview-Token": "akp_" + "0" * 48})[0] == 401
    assert site.ask(f"/preview/{site.id}/8000/", host=site.own)[0] == 401
    assert site.ask("/", host=site.host(8001))[0] == 200, "the public one asks for none"
    other = site.daemon.request("GET", f"/v1/sandboxes/{site.id}/ports")[1]["ports"][1]["token"]
    assert site.ask("/", {"X-Agentkernel-Preview-Token": other})[0] == 401, "nor for another's"


def test_a_browser_gets_a_cookie_for_that_host_alone(site: Site) -> None:
    page = {"Accept": "text/html,*/*"}
    status, told, _ = site.ask(f"/app?a=1&ak_preview_token={site.token}&b=2", page)
    assert (status, told["Location"]) == (303, "/app?a=1&b=2")
    cookie = told["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Domain" not in cookie
    pair = cookie.partition(";")[0]
    seen = site.seen("/app", {"Cookie": f"a=1; {pair}; b=2"})
    assert names(seen)["cookie"] == "a=1; b=2", "the guest does not see the token"
    # A program gets its answer at once, and the guest does not see the token either.
    seen = site.seen(f"/app?ak_preview_token={site.token}&x=1", {})
    assert seen["target"] == "/app?x=1"
    # Other pages' requests bring the cookie along: it is not theirs.
    for origin in ("https://evil.example", "null", f"http://{site.host(8001)}"):
        assert site.ask("/", {"Cookie": pair, "Origin": origin})[0] == 401, origin
    assert site.ask("/", {"Cookie": pair, "Origin": f"http://{site.host()}"})[0] == 200
    # An image or a script of theirs has no Origin, but the browser says whose it is.
    for where, mode, status in (
        *(("same-site", "no-cors", 401), ("cross-site", "no-cors", 401)),
        *(("same-origin", "no-cors", 200), ("same-site", "navigate", 200)),
    ):
        fetched = {"Sec-Fetch-Site": where, "Sec-Fetch-Mode": mode}
        assert site.ask("/", {"Cookie": pair, **fetched})[0] == status, fetched
    # On the API's own name cookies mean nothing.
    assert site.ask(f"/preview/{site.id}/8000/", {"Cookie": pair}, host=site.own)[0] == 401
    # A path that looks like a host leads to none.
    status, told, _ = site.ask(f"//evil.example/?ak_preview_token={site.token}", page)
    assert (status, told["Location"]) == (303, "/evil.example/")


def test_api_tokens_open_their_owners_previews_on_the_api_name_alone(site: Site) -> None:
    mine = site.daemon.caller("previews-admin", owner="local")
    others = site.daemon.caller("previews-other")
    reader = site.daemon.caller("previews-reader", owner="local", scopes=["read"])
    path = f"/preview/{site.id}/8000/x"
    assert site.ask(path, mine.headers(), host=site.own)[0] == 200
    assert site.ask(path, others.headers(), host=site.own)[0] == 404
    assert site.ask(path, reader.headers(), host=site.own)[0] == 403
    assert site.ask("/x", mine.headers())[0] == 401, "by host it is no credential"
    # Nor does one without the right to run commands see the preview's token.
    _, listed = reader.request("GET", f"/v1/sandboxes/{site.id}/ports")
    assert site.token not in json.dumps(listed)
    assert others.request("GET", f"/v1/sandboxes/{site.id}/ports")[0] == 404
    _, listed = mine.request("GET", f"/v1/sandboxes/{site.id}/ports")
    assert (
        listed["ports"][0]["preview_url"] == f"http://{site.host()}/?ak_preview_token={site.token}"
    )


def test_no_credential_of_ours_reaches_the_guest(site: Site) -> None:
    api = site.daemon.token("previews-secret", owner="local")
    headers = {
        "Authorization": f"Bearer {api}",
        "Proxy-Authorization": f"Bearer {api}",
        "X-Copied": f"token is {api}",
        "Referer": f"http://{site.host()}/?ak_preview_token={site.token}",
        "Agentkernel-Owner": "local",
        "X-Agentkernel-Preview-Token": site.token,
        "Cookie": f"ak_preview={site.token}; keep=1; ak_preview=other",
        "Sec-WebSocket-Protocol": f"chat, bearer.{api}",
        "X-Forwarded-For": "6.6.6.6",
        "X-Kept": "yes",
    }
    for path, host in (("/headers", site.host()), (f"/preview/{site.id}/8000/h", site.own)):
        if host == site.own:
            del headers["Agentkernel-Owner"]
        seen = site.seen(path, headers, host=host)
        text = json.dumps(seen)
        assert api not in text and site.token not in text and "6.6.6.6" not in text
        told = names(seen)
        assert not {"authorization", "proxy-authorization", "referer", "x-copied"} & told.keys()
        assert told["x-kept"] == "yes" and told["sec-websocket-protocol"] == "chat"
        assert told.get("cookie") == ("keep=1" if host == site.host() else None)
    # The guest's own credentials pass: without this, the test above would prove nothing.
    own = {"Authorization": "Bearer of-the-app", "X-Agentkernel-Preview-Token": site.token}
    assert names(site.seen("/h", own))["authorization"] == "Bearer of-the-app"


# -- origins ---------------------------------------------------------------------------------------


def test_cookies_of_two_previews_do_not_meet(site: Site) -> None:
    _, told, _ = site.ask("/cookie", host=site.host(8001))
    cookies = told.get_all("Set-Cookie")
    assert cookies == ["session=8001; Path=/; Max-Age=100"], "for this host, and without our own"
    assert told["Strict-Transport-Security"] is None
    # On the API's own name they would be one jar: there are none, and nothing else that stays.
    path = f"/preview/{site.id}/8001/cookie"
    for headers, where in (({}, path), ({"X-Agentkernel-Preview": f"8001-{site.id}"}, "/cookie")):
        status, told, _ = site.ask(where, headers, host=site.own)
        assert status == 200
        for name in ("Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed"):
            assert told[name] is None
        policy = told["Content-Security-Policy"]
        assert policy.startswith("sandbox ") and "allow-same-origin" not in policy
    seen = site.seen(f"/preview/{site.id}/8001/h", {"Cookie": "of-the-api=1"}, host=site.own)
    assert "cookie" not in names(seen)


def test_a_wrong_name_is_not_served(site: Site) -> None:
    """A page whose name was turned to this address says its own: by path, by header, as preview."""
    path = f"/preview/{site.id}/8001/"
    assert site.ask(path, host=site.own)[0] == 200
    assert site.ask(path, host=f"evil.example:{site.daemon.port}")[0] == 403
    header = {"X-Agentkernel-Preview": f"8001-{site.id}"}
    assert site.ask("/", header, host="evil.example")[0] == 403
    assert site.ask("/", host=f"8001-{site.id}.evil.example")[0] == 403
    assert site.ask("/", host=f"8001-{site.id}.localhost.evil.example")[0] == 403


def test_a_preview_host_never_leads_to_the_api(site: Site) -> None:
    token = site.daemon.token("previews-api", owner="local", scopes=["read", "admin"])
    headers = {"Authorization": f"Bearer {token}"}
    assert b"state_dir" in site.ask("/v1/version", headers, host=site.own)[2]
    status, _, body = site.ask("/v1/version", headers, host=site.host(8001))
    assert json.loads(body)["target"] == "/v1/version", "it is the guest that answers"
    for label in (f"8002-{site.id}", "8001-" + "a" * 20, f"99999-{site.id}", f"0-{site.id}"):
        status, _, body = site.ask("/v1/version", headers, host=f"{label}.localhost")
        assert status in (403, 404) and b"state_dir" not in body, label


def test_only_published_ports_and_no_port_of_the_host(site: Site) -> None:
    assert site.ask("/", host=site.host(8002))[0] == 404, "it listens inside, and is not published"
    with socket.create_server(("127.0.0.1", 0)) as host_server:
        number = host_server.getsockname()[1]
        body = {"port": f"preview:{number}", "public": True}
        path = f"/v1/sandboxes/{site.id}/ports"
        assert site.daemon.request("POST", path, body)[0] == 201
        status, _, answer = site.ask("/", host=site.host(number))
        assert status == 502 and b"nothing listens" in answer, "the port of the same number inside"
        assert site.daemon.request("DELETE", f"{path}/{number}")[0] == 204
        assert site.ask("/", host=site.host(number))[0] == 404


# -- what passes -----------------------------------------------------------------------------------


def test_uploads_and_downloads(site: Site) -> None:
    data = os.urandom(9 << 20)
    digest = hashlib.sha256(data).hexdigest()
    host = site.host(8001)
    _, _, body = site.ask("/upload", host=host, method="POST", body=data)
    assert json.loads(body) == {"bytes": len(data), "sha256": digest}
    pieces = iter([data[:100], data[100:5_000_000], data[5_000_000:]])
    _, _, body = site.ask("/upload", host=host, method="PUT", body=pieces)  # chunked
    assert json.loads(body) == {"bytes": len(data), "sha256": digest}
    site.daemon.forget_peak()
    before = site.daemon.peak_memory()
    _, told, body = site.ask("/big", host=host)
    assert len(body) == 64 << 20 == int(told["Content-Length"])
    assert site.daemon.peak_memory() - before < 24 << 20, "it was streamed"
    status, told, body = site.ask("/big", host=host, method="HEAD")
    assert (status, body, told["Content-Length"]) == (200, b"", str(64 << 20))


def test_events_come_as_they_are_sent(site: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.daemon.port, timeout=SECONDS)
    connection.request("GET", "/sse", headers={"Host": site.host(8001)})
    answer = connection.getresponse()
    assert answer.read1(100) == b"data: one\n\n", "before the second is even written"
    assert site.ask("/go", host=site.host(8001))[0] == 200
    assert answer.read() == b"data: two\n\n"
    connection.close()


def test_websockets(site: Site) -> None:
    token = {"X-Agentkernel-Preview-Token": site.token}
    sock = socket.create_connection(("127.0.0.1", site.daemon.port), timeout=SECONDS)
    with connect(f"ws://{site.host()}/ws", sock=sock, additional_headers=token, max_size=None,
                 compression=None) as frames:  # fmt: skip
        for text in ("a", "b" * 70_000, "c" * 3_000_000):
            frames.send(text)
            assert frames.recv(SECONDS) == text
    with unix_connect(site.daemon.socket_path, f"ws://localhost/preview/{site.id}/8000/ws") as ws:
        ws.send(b"\0binary")
        assert ws.recv(SECONDS) == b"\0binary"
    sock = socket.create_connection(("127.0.0.1", site.daemon.port), timeout=SECONDS)
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://{site.host()}/ws", sock=sock):
        pass
    assert refused.value.response.status_code == 401
    sock = socket.create_connection(("127.0.0.1", site.daemon.port), timeout=SECONDS)
    with (
        pytest.raises(InvalidStatus) as answered,
        connect(f"ws://{site.host(8001)}/headers", sock=sock),
    ):
        pass
    assert answered.value.response.status_code == 200, "a server that does not switch"


def test_an_upgrade_to_anything_else_is_not_passed_on(site: Site) -> None:
    headers = {"Connection": "Upgrade, HTTP2-Settings, X-Hop", "Upgrade": "h2c",
               "HTTP2-Settings": "AAMAAABk", "X-Hop": "1", "TE": "trailers"}  # fmt: skip
    told = names(site.seen("/headers", headers, host=site.host(8001)))
    assert not {"upgrade", "http2-settings", "x-hop", "te"} & told.keys()
    assert told["connection"] == "close"
    status, _, body = site.ask("/bad/surprise", headers, host=site.host(8001))
    assert status == 502 and b"raw" not in body


# -- what fails ------------------------------------------------------------------------------------


def raw(site: Site, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", site.daemon.port), timeout=SECONDS) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
        return answer


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: xchunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: +5",
        "Content-Length : 5",
        " Folded: 1",
        "X-A: a\x00b",
    ],
)
def test_ambiguous_requests_are_refused(site: Site, lines: str) -> None:
    host = site.host(8001)
    head = f"POST /first HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n\r\n0\r\n\r\n"
    smuggled = f"GET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n"
    answer = raw(site, (head + smuggled).encode("latin-1"))
    assert answer.split(b" ")[1] in (b"400", b"501"), answer[:300]
    assert b"smuggled" not in answer


def test_two_hosts_are_none(site: Site) -> None:
    head = f"GET / HTTP/1.1\r\nHost: {site.host(8001)}\r\nHost: {site.own}\r\n\r\n"
    assert b" 403 " in raw(site, head.encode()).split(b"\r\n")[0]


@pytest.mark.parametrize("what", ["twice", "noise", "nothing", "flood", "interim", "surprise"])
def test_what_is_no_answer_is_502(site: Site, what: str) -> None:
    before = site.daemon.memory()
    status, told, body = site.ask(f"/bad/{what}", host=site.host(8001))
    assert status == 502, body
    assert json.loads(body)["code"] == "port_failed"
    assert "evil" not in str(told)
    assert site.daemon.memory() - before < 16 << 20


def test_answers_that_end_badly_are_not_taken_for_whole(site: Site) -> None:
    host = site.host(8001)
    assert site.ask("/bad/both", host=host)[2] == b"hello", "its length is what it is chunked in"
    assert site.ask("/bad/two", host=host)[2] == b"first"
    for what in ("short", "chunk"):
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            site.ask(f"/bad/{what}", host=host)


def test_a_silent_server_costs_one_connection(site: Site) -> None:
    """It is let go of when the client is."""
    sockets = []
    for _ in range(10):
        sock = socket.create_connection(("127.0.0.1", site.daemon.port), timeout=SECONDS)
        sock.sendall(f"GET /bad/silent HTTP/1.1\r\nHost: {site.host(8001)}\r\n\r\n".encode())
        sockets.append(sock)
    eventually(lambda: _inside(site) >= 10)
    assert site.ask("/", host=site.host(8001))[0] == 200
    for sock in sockets:
        sock.close()
    eventually(lambda: _inside(site) == 0)


def _inside(site: Site) -> int:
    """Connections to the guest's port 8001 (hexadecimal 1F41) that are established."""
    lines = site.daemon.exec(site.id, "cat /proc/net/tcp")["stdout"].splitlines()
    return sum(1 for line in lines if line.split()[1].endswith(":1F41") and line.split()[3] == "01")


def test_errors_are_for_who_asks(site: Site) -> None:
    status, told, body = site.ask("/", {"Accept": "text/html"})
    assert status == 401 and told["Content-Type"].startswith("text/html")
    assert b"asks for its token" in body and b"<script" not in body
    status, told, body = site.ask("/", {"Accept": "application/json"})
    assert status == 401 and json.loads(body)["code"] == "unauthenticated"
    id = site.daemon.create(ports=["preview:8000"])
    try:
        _, listed = site.daemon.request("GET", f"/v1/sandboxes/{id}/ports")
        token = {"X-Agentkernel-Preview-Token": listed["ports"][0]["token"]}
        host = f"8000-{id}.localhost"
        status, _, body = site.ask("/", token, host=host)
        assert status == 502 and b"nothing listens on port 8000" in body
        site.daemon.request("POST", f"/v1/sandboxes/{id}/stop", {"grace_seconds": 0})
        status, _, body = site.ask("/", token, host=host)
        assert status == 409 and b"not running" in body
    finally:
        site.daemon.request("DELETE", f"/v1/sandboxes/{id}")
    assert site.ask("/", token, host=host)[0] == 404


# -- publishing ------------------------------------------------------------------------------------


def test_who_may_publish_what(site: Site) -> None:
    daemon = site.daemon
    caller = daemon.caller("previews-publisher")
    status, made = caller.request("POST", "/v1/sandboxes", {"ephemeral": True, "ports": ["0:9000"]})
    assert status == 201, made
    path = f"/v1/sandboxes/{made['id']}/ports"
    try:
        for body in (
            {"port": "0.0.0.0:0:9001"},
            {"port": "80:9001"},
            {"port": "preview:9001", "public": True},
        ):
            status, answer = caller.request("POST", path, body)
            assert (status, answer["code"]) == (403, "policy_denied"), body
        spec = {"ephemeral": True, "ports": ["0.0.0.0:0:9001"]}
        assert caller.request("POST", "/v1/sandboxes", spec)[0] == 403
        status, answer = caller.request("POST", path, {"port": "[::1]:0:9001"})
        assert status == 201 and answer["address"] == "::1"
        assert caller.request("POST", path, {"port": "nonsense"})[0] == 400
        assert Caller(daemon, site.daemon.token("p-r", scopes=["read"])).request(
            "POST", path, {"port": "0:9002"}
        )[0] == 403  # fmt: skip
        # Nor may whoever acts for somebody on the socket, as a model's tools do.
        acting = {"Agentkernel-Owner": "token:previews-publisher"}
        wide = {"port": "preview:9001", "public": True}
        assert daemon.request("POST", path, wide, acting)[0] == 403
        assert daemon.request("POST", path, {"port": "0:9005"}, acting)[0] == 201
        # The user's own word is enough: the control of the refusals above.
        status, answer = daemon.request("POST", path, {"port": "0.0.0.0:0:9003", "public": True})
        assert status == 201 and answer["address"] == "0.0.0.0"
        assert caller.request("DELETE", f"{path}/9003")[0] == 204
        assert caller.request("DELETE", f"{path}/9003")[0] == 404
        assert caller.request("DELETE", f"{path}/x")[0] == 400
    finally:
        assert caller.request("DELETE", f"/v1/sandboxes/{made['id']}")[0] == 204


def test_killed_daemon_opens_its_ports_again(own_daemon: Any) -> None:
    daemon = own_daemon
    id = daemon.create(ports=["0:8000"])
    argv = ["python3", "-c", SERVER, "8000"]
    daemon.request("POST", f"/v1/sandboxes/{id}/jobs", {"argv": argv})
    [before] = daemon.request("GET", f"/v1/sandboxes/{id}/ports")[1]["ports"]

    def answers() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", before["host_port"], timeout=SECONDS)
        try:
            connection.request("GET", "/x")
            return b'"/x"' in connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()

    eventually(answers)
    held = socket.create_connection(("127.0.0.1", before["host_port"]), timeout=SECONDS)
    daemon.kill()
    assert not answers()
    daemon.start()
    [after] = daemon.request("GET", f"/v1/sandboxes/{id}/ports")[1]["ports"]
    assert after == before
    assert answers()
    held.close()
    assert daemon.request("DELETE", f"/v1/sandboxes/{id}")[0] == 204
    assert not answers(), "nothing listens any more"


@pytest.fixture
def ending_daemon(tmp_path: Path) -> Iterator[NetworkDaemon]:
    daemon = NetworkDaemon(tmp_path)
    daemon.start()
    yield daemon
    if not daemon.alive():
        daemon.start()
    daemon.remove_all()
    assert daemon.terminate() == 0
    daemon.close()


def test_nothing_is_left_and_the_daemon_ends_at_once(ending_daemon: NetworkDaemon) -> None:
    """Of a sandbox that is removed while it is used, and of a daemon that ends meanwhile."""
    daemon = ending_daemon
    daemon.request("DELETE", f"/v1/sandboxes/{daemon.create()}")  # whatever the first one loads
    before = daemon.descriptors()
    for way in ("remove", "terminate"):
        with ExitStack() as stack:
            used_until(daemon, way, stack)
        if way == "remove":
            eventually(lambda: daemon.descriptors() <= before)
    assert "cut off" not in daemon.log() and "Traceback" not in daemon.log()
    assert "never retrieved" not in daemon.log()


def used_until(daemon: NetworkDaemon, way: str, stack: ExitStack) -> None:
    id = daemon.create(ephemeral=True, ports=["0:8000"])
    argv = ["python3", "-c", SERVER, "8000"]
    daemon.request("POST", f"/v1/sandboxes/{id}/jobs", {"argv": argv})
    [port] = daemon.request("GET", f"/v1/sandboxes/{id}/ports")[1]["ports"]
    site = Site(daemon, id, port["token"])
    shown = {"X-Agentkernel-Preview-Token": port["token"]}
    eventually(lambda: site.ask("/", shown)[0] == 200)

    def opened(number: int) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", number), timeout=SECONDS)
        return stack.enter_context(sock)

    direct = [opened(port["host_port"]) for _ in range(10)]
    for sock in direct:
        sock.sendall(b"GET /bad/silent HTTP/1.1\r\n\r\n")
    preview = opened(daemon.port)
    preview.sendall(
        f"GET /bad/silent HTTP/1.1\r\nHost: {site.host()}\r\n"
        f"X-Agentkernel-Preview-Token: {site.token}\r\n\r\n".encode()
    )
    web = stack.enter_context(
        connect(f"ws://{site.host()}/ws", sock=opened(daemon.port), additional_headers=shown)
    )
    web.send("x")
    assert web.recv(SECONDS) == "x"
    if way == "terminate":
        assert daemon.terminate() == 0
    else:
        assert daemon.request("DELETE", f"/v1/sandboxes/{id}")[0] == 204
        with socket.socket() as sock:
            assert sock.connect_ex(("127.0.0.1", port["host_port"])) != 0
    with pytest.raises(ConnectionClosed):
        web.recv(SECONDS)
    for sock in direct:
        with suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    assert preview.recv(12) in (b"HTTP/1.1 503", b"HTTP/1.1 502")
