"""What is read of projects: texts that a guest has changed, and git's index."""

from __future__ import annotations

import hashlib
import struct

from hypothesis import strategies as st

from agentkernel.detection.containers import CONTAINER_FILES
from agentkernel.detection.detecting import detect
from agentkernel.detection.files import GivenFiles
from agentkernel.detection.readers import PROJECT_READERS, VERSION_FILES
from agentkernel.workspaces.git_index import BadIndexError, parse
from agentkernel.workspaces.lines import line_blocks, merge, split_lines

from .making import damaged
from .target import Target

_LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"d"]), max_size=40).map(b"".join)


def merge_texts(texts: tuple[bytes, bytes, bytes]) -> None:
    base, ours, theirs = texts
    found = merge(base, ours, theirs, our_name="x", their_name="y")
    assert merge(base, ours, base, our_name="x", their_name="y").content == ours
    assert merge(base, base, theirs, our_name="x", their_name="y").content == theirs
    assert bool(found.conflicts) == (b">>>>>>> y\n" in found.content)
    left, right = split_lines(ours), split_lines(theirs)
    built, at = [], 0
    for i1, i2, j1, j2 in line_blocks(left, right):
        built += left[at:i1] + right[j1:j2]
        at = i2
    assert built + left[at:] == right


def _index(version: int) -> bytes:
    content = struct.pack(">4sII", b"DIRC", version, 2)
    for name in (b"a", b"dir/b"):
        entry = struct.pack(">10I", *range(10)) + b"\1" * 20 + struct.pack(">H", len(name))
        if version == 4:
            content += entry + b"\0" + name + b"\0"
        else:
            entry += name
            content += entry + b"\0" * (8 - len(entry) % 8)
    return content + hashlib.sha1(content).digest()


def read_index(content: bytes) -> None:
    for hash_bytes in (20, 32):
        for path, entry in parse(content, hash_bytes=hash_bytes).items():
            assert isinstance(path, bytes) and len(entry.object) == 2 * hash_bytes


def detect_in(project: tuple[tuple[str, ...], dict[str, bytes]]) -> None:
    command, files = project
    found = detect(command, files=GivenFiles(files))
    if found is not None:
        assert found.why.strip() and (found.image is None or " " not in found.image)


_COMMANDS = st.sampled_from(
    [(), ("sh", "-c", "cd x && npm test"), ("make",), ("python3",), ("./x",), ("env", "A=b", "go")]
)
_FILES = sorted({*VERSION_FILES, *PROJECT_READERS, *CONTAINER_FILES, "x.csproj", "x.rockspec"})
_TEXTS = st.sampled_from(
    [b"3.12\n", b'[project]\nrequires-python = ">=3.9,<4"\n', b'{"engines": {"node": "^20 || 22"}}',
     b"FROM python:${V:-3.12}-slim AS a\n", b'{"image": "node:20", /* x */ "features": {}}',
     b"[tools]\npython = [\"3.12\"]\n", b"go 1.22\n", b'ruby "~> 3.2"\n', b"java=21.0.2-tem\n",
     b"<java.version>17</java.version>", b"JavaLanguageVersion.of(17)", b'elixir: "~> 1.15"']
)  # fmt: skip

TARGETS = [
    Target(
        "detection",
        st.tuples(
            _COMMANDS,
            st.dictionaries(st.sampled_from(_FILES), st.binary(max_size=80) | damaged(_TEXTS)),
        ),
        detect_in,
    ),
    Target("merges", st.tuples(_LINES, _LINES, _LINES), merge_texts),
    Target(
        "git-index",
        st.one_of(
            st.binary(max_size=200), *(damaged(st.just(_index(number))) for number in (2, 4))
        ),
        read_index,
        also=(BadIndexError,),
    ),
]
