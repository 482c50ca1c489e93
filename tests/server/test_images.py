"""Images over HTTP: archives as streams, progress as events, and who may do what."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ..unit.images.archives.making import Image, digest, oci_archive
from .daemon_process import Daemon, eventually
from .network_process import Caller, NetworkDaemon

IMAGE = Image(b"http")
SMALL = "small:http"


def send(
    daemon: Daemon, archive: bytes, *, accept: str = "*/*", query: str = ""
) -> tuple[int, bytes]:
    connection = daemon.connection()
    connection.request(
        "PUT",
        f"/v1/images/archive{query}",
        body=iter([archive[:3000], archive[3000:]]),
        headers={"Accept": accept, "Content-Type": "application/x-tar"},
        encode_chunked=True,
    )
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def events(text: bytes) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


@pytest.fixture
def loaded(daemon: Daemon) -> Iterator[str]:
    status, answer = send(daemon, oci_archive(IMAGE, SMALL))
    body = json.loads(answer)
    assert status == 200, body
    assert body["images"][0]["digest"] == IMAGE.digest
    yield SMALL
    status, _ = daemon.request("DELETE", f"/v1/images?image={SMALL}&force=1")
    assert status in (200, 404)


def test_an_archive_in_and_out(daemon: Daemon, loaded: str) -> None:
    status, listed = daemon.request("GET", "/v1/images")
    assert status == 200
    assert [image["names"] for image in listed["images"]] == [[SMALL]]
    status, detail = daemon.request("GET", f"/v1/images/details?image={IMAGE.digest}")
    assert status == 200 and detail["config"]["cmd"] == ["sh"]
    connection = daemon.connection()
    connection.request("GET", f"/v1/images/archive?image={SMALL}")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.getheader("Content-Type") == "application/x-tar"
    archive = answer.read()
    connection.close()
    assert daemon.request("DELETE", f"/v1/images?image={SMALL}")[0] == 200
    status, again = send(daemon, archive, accept="text/event-stream")
    told = events(again)
    assert status == 200 and told[-1][0] == "images"
    assert told[-1][1]["images"][0]["digest"] == IMAGE.digest
    progress = [body for kind, body in told if kind == "progress"]
    assert progress[-1] == {
        "layer": digest(IMAGE.layers[0]), "state": "ready",
        "done": len(IMAGE.layers[0]), "total": len(IMAGE.layers[0]),
    }  # fmt: skip


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_a_wrong_archive_is_an_answer(daemon: Daemon, accept: str) -> None:
    status, answer = send(daemon, b"no archive at all" * 300, accept=accept)
    assert (status, json.loads(answer)["code"]) == (422, "image_invalid")
    status, answer = send(daemon, oci_archive(IMAGE, SMALL), accept=accept, query="?name=../up")
    assert (status, json.loads(answer)["code"]) == (400, "invalid_input")


def test_a_client_that_leaves_leaves_nothing(daemon: Daemon) -> None:
    connection = daemon.connection()
    connection.putrequest("PUT", "/v1/images/archive")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    piece = oci_archive(IMAGE, SMALL)[:4000]
    connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    partial = daemon.state_dir / "images" / "partial"
    eventually(lambda: any(partial.glob(".stage-*")))
    connection.close()
    eventually(lambda: not any(partial.glob(".stage-*")))
    assert daemon.request("GET", "/v1/images")[1]["images"] == []
    # And nobody is in the way of those who remove.
    assert daemon.request("POST", "/v1/images/prune", {})[0] == 200


def test_what_is_not_here(daemon: Daemon) -> None:
    for method, path, body in (
        ("GET", "/v1/images/details?image=absent:1", None),
        ("GET", "/v1/images/archive?image=absent:1", None),
        ("DELETE", "/v1/images?image=absent:1", None),
        ("POST", "/v1/images/tag", {"image": "absent:1", "name": "other:1"}),
        ("POST", "/v1/sandboxes", {"image": "absent:1", "pull": "never"}),
    ):
        status, problem = daemon.request(method, path, body)
        assert (status, problem["code"]) == (404, "not_found"), path
    status, problem = daemon.request("GET", "/v1/images/archive")
    assert (status, problem["code"]) == (400, "invalid_input")
    status, problem = daemon.request("POST", "/v1/images/pull", {"reference": "UP PER"})
    assert (status, problem["code"]) == (400, "invalid_input")


def test_a_sandbox_is_made_as_events(daemon: Daemon, loaded: str) -> None:
    connection = daemon.connection()
    body = json.dumps({"image": loaded, "ephemeral": True})
    head = {"Accept": "text/event-stream", "Content-Type": "application/json"}
    connection.request("POST", "/v1/sandboxes", body, head)
    answer = connection.getresponse()
    told = events(answer.read())
    connection.close()
    kind, made = told[-1]
    assert kind == "sandbox" and made["image"].endswith(IMAGE.digest)
    status, problem = daemon.request("DELETE", f"/v1/images?image={SMALL}")
    assert (status, problem["code"]) == (409, "conflict")
    assert problem["details"]["sandboxes"] == [made["id"]]
    assert daemon.request("DELETE", f"/v1/sandboxes/{made['id']}")[0] == 204
    connection = daemon.connection()
    connection.request("POST", "/v1/sandboxes", json.dumps({"image": "x:1", "pull": "never"}), head)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (404, "not_found")
    connection.close()


def test_who_may(network_daemon: NetworkDaemon) -> None:
    def caller(*scopes: str) -> Caller:
        body = {"name": f"images-{'-'.join(scopes)}", "scopes": list(scopes)}
        status, made = network_daemon.request("POST", "/v1/tokens", body)
        assert status == 201
        return Caller(network_daemon, made["token"])

    reader, manager = caller("read"), caller("read", "manage")
    assert reader.request("GET", "/v1/images")[0] == 200
    assert manager.request("POST", "/v1/images/prune", {})[0] == 200
    for method, path, body in (
        ("POST", "/v1/images/prune", {}),
        ("POST", "/v1/images/pull", {"reference": "x:1"}),
        ("POST", "/v1/images/tag", {"image": "x:1", "name": "y:1"}),
        ("PUT", "/v1/images/archive", None),
        ("GET", "/v1/images/archive?image=x:1", None),
        ("DELETE", "/v1/images?image=x:1", None),
    ):
        status, problem = reader.request(method, path, body)
        assert (status, problem["code"]) == (403, "policy_denied"), path
    wanted = {"directory": "/usr/share/doc", "name": "doc:1"}
    status, problem = manager.request("POST", "/v1/images/import", wanted)
    assert (status, problem["details"]["needed"]) == (403, "host-paths")
    # A name is not a directory of the machine: whoever may make sandboxes may name one.
    status, problem = manager.request("POST", "/v1/sandboxes", {"image": "x:1", "pull": "never"})
    assert (status, problem["code"]) == (404, "not_found")
    # What is not public is this machine's: no token has the daemon knock there.
    for registry in ("127.0.0.1:1", "localhost:1", "169.254.169.254", "10.1.2.3"):
        for path, body in (
            ("/v1/images/pull", {"reference": f"{registry}/x:1"}),
            ("/v1/sandboxes", {"image": f"{registry}/x:1"}),
        ):
            status, problem = manager.request("POST", path, body)
            assert (status, problem["code"]) == (403, "policy_denied"), (registry, path)
    status, problem = manager.request("POST", "/v1/sandboxes", {"image": "/usr"})
    assert (status, problem["code"]) == (403, "policy_denied")


def build_archive(wanted: dict[str, Any]) -> bytes:
    content = json.dumps(wanted).encode()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo(".agentkernel-build.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return archive.getvalue()


@pytest.fixture
def near_registry() -> Iterator[tuple[str, list[str]]]:
    """A service on this machine's loopback that has no image; and who asked it for what."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_registry_of_this_machine_needs_the_scope_of_its_directories(
    network_daemon: NetworkDaemon, near_registry: tuple[str, list[str]]
) -> None:
    address, asked = near_registry
    reference = f"{address}/inside:1"
    manager = network_daemon.caller("near-manage", scopes=["read", "manage"])
    trusted = network_daemon.caller("near-host", scopes=["read", "manage", "host-paths"])
    archive = build_archive({"dockerfile": f"FROM {reference}\n"})

    def tries(caller: Caller) -> Iterator[tuple[int, Any]]:
        yield caller.request("POST", "/v1/images/pull", {"reference": reference})
        yield caller.request("POST", "/v1/sandboxes", {"image": reference})
        yield caller.request("PUT", "/v1/images/build", archive)

    for status, problem in tries(manager):
        assert (status, problem["details"].get("needed")) == (403, "host-paths"), problem
    assert not asked
    for status, problem in tries(trusted):
        assert (status, problem["code"]) == (404, "not_found"), problem
    assert asked


def test_names_of_registries_are_not_given_by_everybody(network_daemon: NetworkDaemon) -> None:
    """Who asks for `small:named` means what its registry gives, and not what another token made."""
    manager = network_daemon.caller("name-manage", scopes=["read", "manage"])
    trusted = network_daemon.caller("name-host", scopes=["read", "manage", "host-paths"])
    image = Image(b"named")
    own = "localhost/own:1"

    def load(caller: Caller, name: str) -> tuple[int, Any]:
        return caller.request("PUT", "/v1/images/archive", oci_archive(image, name))

    def build(caller: Caller, name: str) -> tuple[int, Any]:
        wanted = {"dockerfile": "FROM scratch\nENV A=b\n", "tags": [name]}
        return caller.request("PUT", "/v1/images/build", build_archive(wanted))

    def tag(caller: Caller, name: str) -> tuple[int, Any]:
        return caller.request("POST", "/v1/images/tag", {"image": own, "name": name})

    for give in (load, build, tag):
        status, problem = give(manager, own)
        assert status == 200, problem
        for name in ("small:named", "ghcr.io/others/small:named"):
            status, problem = give(manager, name)
            assert (status, problem["details"]["needed"]) == (403, "host-paths"), problem
        status, listed = manager.request("GET", "/v1/images")
        assert [one["names"] for one in listed["images"]] == [[own]]
    for give in (load, build, tag):
        assert give(trusted, "small:named")[0] == 200
    assert manager.request("POST", "/v1/images/prune", {"all": True})[0] == 200
