"""Several files in one request, and bodies that are no forms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError
from agentkernel.server.multipart import MAX_PARTS, MultipartReader, Part, boundary_of

from .daemon_process import Daemon

BOUNDARY = "----a'b"


def form(*parts: tuple[str, bytes], boundary: str = BOUNDARY) -> bytes:
    body = b""
    for filename, content in parts:
        head = f'Content-Disposition: form-data; name="f"; filename="{filename}"'
        body += f"--{boundary}\r\n{head}\r\nContent-Type: text/x\r\n\r\n".encode()
        body += content + b"\r\n"
    return body + f"--{boundary}--\r\n".encode()


def upload(daemon: Daemon, sandbox: str, body: bytes, query: str = "path=/in") -> tuple[int, Any]:
    kind = {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"'}
    return daemon.request("POST", f"/v1/sandboxes/{sandbox}/files?{query}", body, kind)


def content(daemon: Daemon, sandbox: str, path: str) -> Any:
    return daemon.request("GET", f"/v1/sandboxes/{sandbox}/files?path={path}")[1]


def test_several_files(daemon: Daemon, sandbox: str) -> None:
    big = bytes(range(256)) * 8192
    files = [("a.txt", b"one"), ("deep/er/b", b""), ("c", big), ("d\u00e9", b"\r\n--no\r\n")]
    status, body = upload(daemon, sandbox, form(*files), "path=/in&mode=600")
    assert status == 200, body
    assert [(file["path"], file["size"]) for file in body["files"]] == [
        (name, len(data)) for name, data in files
    ]
    assert content(daemon, sandbox, "/in/c") == big
    assert content(daemon, sandbox, "/in/d%C3%A9") == b"\r\n--no\r\n"
    entry = daemon.request("GET", f"/v1/sandboxes/{sandbox}/stat?path=/in/a.txt")[1]
    assert entry["mode"] & 0o777 == 0o600


@pytest.mark.parametrize("name", ["../out", "/etc/x", "", "a/../../b", "."])
def test_no_file_leads_out_of_the_directory(daemon: Daemon, sandbox: str, name: str) -> None:
    status, problem = upload(daemon, sandbox, form(("fine", b"1"), (name, b"2")))
    assert (status, problem["code"]) == (400, "invalid_input")
    assert content(daemon, sandbox, "/in/fine") == b"1"  # the control, and what came before stays


def test_a_body_that_breaks_off_leaves_no_half_file(daemon: Daemon, sandbox: str) -> None:
    body = form(("whole", b"1"), ("half", b"2" * 100_000))[:-50_000]
    status, problem = upload(daemon, sandbox, body)
    assert (status, problem["code"]) == (400, "invalid_input")
    assert content(daemon, sandbox, "/in/whole") == b"1"
    assert daemon.request("GET", f"/v1/sandboxes/{sandbox}/stat?path=/in/half")[0] == 404


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "multipart/form-data", "multipart/form-data; boundary="]
)
def test_what_is_no_form(daemon: Daemon, sandbox: str, kind: str) -> None:
    status, problem = daemon.request(
        "POST", f"/v1/sandboxes/{sandbox}/files?path=/in", b"x", {"Content-Type": kind}
    )
    assert (status, problem["code"]) == (400, "invalid_input")


def read(body: bytes, *cuts: int, boundary: bytes = BOUNDARY.encode()) -> list[tuple[str, bytes]]:
    reader = MultipartReader(boundary)
    found: list[tuple[str, bytearray]] = []
    places = [0, *sorted(cuts), len(body)]
    for begin, end in zip(places, places[1:], strict=False):
        for event in reader.feed(body[begin:end]):
            if isinstance(event, Part):
                found.append((event.filename or "", bytearray()))
            elif event is not None:
                found[-1][1].extend(event)
    reader.finish()
    return [(name, bytes(data)) for name, data in found]


@given(
    st.lists(st.binary(max_size=200) | st.just(b"\r\n--" + BOUNDARY.encode()[:-1]), max_size=4),
    st.lists(st.integers(0, 900), max_size=8),
)
def test_it_is_the_same_however_it_is_cut(contents: list[bytes], cuts: list[int]) -> None:
    files = [(f"n{place}", data) for place, data in enumerate(contents)]
    body = b"a preamble\r\n" + form(*files) + b"an epilogue"
    assert read(body, *[cut for cut in cuts if cut < len(body)]) == files


@given(st.binary(max_size=400))
def test_any_bytes_are_a_form_or_an_error(data: bytes) -> None:
    for text in (data, form(("a", data))[:-9], b"--x\r\n" + data):
        try:
            read(text, boundary=b"x" if text.startswith(b"--x") else BOUNDARY.encode())
        except InvalidInputError:
            continue


@pytest.mark.parametrize(
    "head",
    [
        "Content-Type: text/plain",
        "Content-Disposition: attachment; name=x",
        "Content-Disposition: form-data",
        "Content-Disposition: form-data; name",
        "no colon",
        "X: " + "y" * 9000,
    ],
)
def test_parts_that_are_none(head: str) -> None:
    with pytest.raises(InvalidInputError):
        read(f"--{BOUNDARY}\r\n{head}\r\n\r\nx\r\n--{BOUNDARY}--".encode())


def test_parts_are_counted_and_nothing_piles_up() -> None:
    with pytest.raises(InvalidInputError, match="at most"):
        read(form(*[("f", b"")] * (MAX_PARTS + 1)))
    reader = MultipartReader(b"x")
    for _ in range(100):
        list(reader.feed(b"y" * 1000))
    assert len(reader._buffer) < 100


def test_quotes_in_names() -> None:
    (named,) = read(form(("a%22b", b"")))
    assert named[0] == 'a"b'
    (named,) = read(form((r"a\"b\\", b"")))
    assert named[0] == 'a"b\\'
    assert boundary_of("multipart/form-data; boundary=abc") == b"abc"
