"""A project's files are somebody else's: what they can't do to whoever looks."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.detection import detect
from agentkernel.detection.containers import CONTAINER_FILES
from agentkernel.detection.files import MAX_BYTES, GivenFiles, LocalFiles
from agentkernel.detection.quick import EVIDENCE
from agentkernel.detection.readers import PROJECT_READERS, VERSION_FILES
from agentkernel.detection.tables import PROJECT_FILES, RUNTIMES
from agentkernel.documents import DocumentError, parse_json, parse_jsonc, parse_toml

NAMES = sorted({*VERSION_FILES, *PROJECT_READERS, *PROJECT_FILES, *CONTAINER_FILES, "x.csproj",
                "x.rockspec", "x.tf"})  # fmt: skip


def test_every_file_that_is_read_wakes_the_quick_look() -> None:
    """Else a `run` would not see it. Lock files and sources never stand alone."""
    weak = {"deno.lock", "uv.lock", "poetry.lock", "Rakefile", ".luacheckrc", ".terraform.lock.hcl"}
    read = {*VERSION_FILES, *PROJECT_READERS, *PROJECT_FILES, *CONTAINER_FILES}
    assert read - weak <= set(EVIDENCE)


def test_links_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.write_text("3.9\n")
    project = tmp_path / "project"
    (project / "real").mkdir(parents=True)
    (project / ".python-version").symlink_to(outside)
    assert detect(["python3"], project).source is None  # type: ignore[union-attr]
    (project / ".python-version").unlink()
    (project / ".devcontainer").symlink_to(tmp_path)
    (tmp_path / "devcontainer.json").write_text('{"image": "python:3.9"}')
    assert detect((), project) is None
    files = LocalFiles(str(project))
    for path in ("../secret", "/etc/passwd", "real/../../secret", "", "real//x", ".."):
        assert files.read(path) is None and files.head(path, 10) == b""
    # The same as a file of its own is read.
    (project / ".python-version").write_text("3.9\n")
    found = detect(["python3"], project)
    assert found is not None and (found.source, found.image) == (
        ".python-version",
        "python:3.9-slim",
    )


@pytest.mark.parametrize("kind", ["fifo", "socket", "directory", "device", "huge", "binary"])
def test_what_is_no_small_text(tmp_path: Path, kind: str) -> None:
    place = tmp_path / ".python-version"
    match kind:
        case "fifo":
            os.mkfifo(place)
        case "socket":
            here = os.open(tmp_path, os.O_PATH)
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(f"/proc/self/fd/{here}/.python-version")
            os.close(here)
        case "directory":
            place.mkdir()
        case "device":
            place.symlink_to("/dev/zero")
        case "huge":
            place.write_bytes(b"3.9\n" + b"#" * MAX_BYTES)
        case "binary":
            place.write_bytes(b"3.9\n\xff\xfe\0")
    found = detect(["python3"], tmp_path)
    assert found is not None and found.wish is None


BOMBS = {
    "nested arrays": "[" * 60000,
    "nested objects": '{"a":' * 10000,
    "nested TOML": "a=" + "[" * 60000,
    "dotted key": "a." * 32000 + "a=1",
    "dotted table": "[" + "a." * 32000 + "a]",
    "many dotted keys": "\n".join(f"b{n}" + ".a" * 200 + "=1" for n in range(40)),
    "long number": "[" + "9" * 60000 + "]",
    "long line": "ruby '" + "a" * 60000,
    "quotes": 'elixir: "' * 7000,
    "spaces": "ruby " + " " * 60000 + '"3.2"',
    "comment": "/*" * 30000,
    "strings": '"\\' * 30000,
    "tags": "<java.version>" * 4000,
    "entities": '<!DOCTYPE a [<!ENTITY b "' + "x" * 50000 + '">]><java.version>&b;</java.version>',
    "lines": "FROM python\n" * 5000,
    "arguments": "".join(f"ARG A{n}=${{A{n - 1}}}${{A{n - 1}}}\n" for n in range(2000)) + "FROM $A",
    "versions": "||".join([">=1,<2"] * 8000),
}


@pytest.mark.parametrize("bomb", sorted(BOMBS))
def test_bombs(bomb: str) -> None:
    """Any of them in any file: an answer, soon, and little memory."""
    content = BOMBS[bomb].encode()[:MAX_BYTES]
    started = time.process_time()
    for name in NAMES:
        detect((), files=GivenFiles({name: content}))
    assert time.process_time() - started < 20


def test_a_bomb_takes_no_memory() -> None:
    """The guard's control: without it this one took more than three gigabytes."""
    with pytest.raises(DocumentError, match="dots"):
        parse_toml(BOMBS["dotted key"])
    assert parse_toml("a." * 200 + "a=1")
    for parse in (parse_json, parse_jsonc, parse_toml):
        with pytest.raises(DocumentError):
            parse("x" + "[" * 60000)


def test_comments_in_json() -> None:
    text = '// one\n{"a": "//no", /* two */ "b": [1, 2,], "c": "\\"/*", }\n'
    assert parse_jsonc(text) == {"a": "//no", "b": [1, 2], "c": '"/*'}
    for wrong in ('{"a": 1 /* ', "", '{"a"'):
        with pytest.raises(DocumentError):
            parse_jsonc(wrong)


PIECES = st.sampled_from(
    ["{", "}", "[", "]", '"', "'", "\n", "=", ".", ",", "FROM ", "ARG ", "python", ":3.12", "ruby ",
     "<release>", "</", "go 1.2", "[tools]\n", "[toolchain]\nchannel", "engines", "node", ">=",
     "~>", "$", "${A}", "\\", "//", "/*", "\0", "\ufeff", "lts/", "1.8", "temurin-", "nightly"]
)  # fmt: skip


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.binary(max_size=200) | st.lists(PIECES, max_size=30).map(lambda p: "".join(p).encode()),
        max_size=4,
    ),
    st.sampled_from([(), ("sh",), ("python3", "x"), ("npm", "test"), ("./x",), ("gradle",)]),
)
def test_any_files(files: dict[str, bytes], command: tuple[str, ...]) -> None:
    found = detect(command, files=GivenFiles(files))
    if found is not None:
        assert found.runtime in RUNTIMES and found.why
        assert found.image is None or (found.image.isprintable() and " " not in found.image)
