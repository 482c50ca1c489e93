"""Dockerfiles, their words, ignore files and archives for ADD, as nobody should write them."""

from __future__ import annotations

import io
import tarfile
from typing import BinaryIO, cast

from hypothesis import strategies as st

from agentkernel.images.building.context import Context
from agentkernel.images.building.layers import unpacked
from agentkernel.images.building.listing import read_listing
from agentkernel.images.building.tree import Entry
from agentkernel.images.dockerfile.parse import parse
from agentkernel.images.dockerfile.words import MAX_WORD, expand, expand_raw, expand_words
from agentkernel.trees.ignoring import Ignore

from .making import damaged
from .target import Target

_LINES = (
    b"# escape=`\n",
    b"# syntax=x\n",
    b"ARG A=${B:-1}\n",
    b"FROM scratch AS one\n",
    b"FROM --platform=linux/amd64 x:1\n",
    b"RUN <<EOF <<-'X'\na\nEOF\n\tb\nX\n",
    b'RUN ["a", "b"]\n',
    b"RUN a \\\n# c\n\n b\n",
    b"COPY --from=0 --chown=1:2 a 'b c' /d/\n",
    b"ADD <<x <<y /z\nx\ny\n",
    b'ENV A=1 B="$A ${C:+d}"\n',
    b"LABEL a=b\n",
    b"HEALTHCHECK --interval=1m2s CMD x\n",
    b"EXPOSE 1-9/udp\n",
    b"SHELL [\n",
)
_dockerfiles = st.one_of(
    st.binary(max_size=200),
    damaged(st.lists(st.sampled_from(_LINES), max_size=8).map(b"".join)),
)
_words = st.text(st.sampled_from("$a{}:-+?'\"\\ b\n#"), max_size=40)
_ignores = st.one_of(
    st.binary(max_size=100),
    st.text(st.sampled_from("*?[]^-!/\\ab.\n#"), max_size=60).map(str.encode),
)


def _tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, link in (
            ("d", tarfile.DIRTYPE, ""),
            ("d/" + "n" * 120, tarfile.REGTYPE, ""),
            ("l", tarfile.SYMTYPE, "../x"),
            ("h", tarfile.LNKTYPE, "d"),
            (".wh.gone", tarfile.REGTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            archive.addfile(info)
    return stream.getvalue()


_archives = damaged(st.just(_tar()))


def read_dockerfile(text: bytes) -> None:
    for stage in parse(text).stages:
        assert all(step.line > 0 for step in stage.steps)


def read_words(text: str) -> None:
    variables = {"a": "x y", "b": "", "ab": "$a"}
    for result in (expand(text, variables), expand_raw(text, variables)):
        assert len(result) <= MAX_WORD
    expand_words(text, variables, escape="`")


def read_ignore(text: bytes) -> None:
    ignore = Ignore(text)
    for path in ("a", "a/b", "ab.b/a/" + "ab" * 50, "-", "[a]"):
        if ignore.leaves_out(path) and ignore.leaves_out_all_below(path):
            assert ignore.leaves_out(f"{path}/a/b")


def read_archive(data: bytes) -> None:
    """As ADD reads it, and as a layer is listed."""
    context = Context(cast(BinaryIO, io.BytesIO(data)))
    found = unpacked(Entry("file", size=len(data), content=0), context)
    for name, _ in found.members if found else ():
        assert name and ".." not in name.split("/") and not name.startswith("/")
    read_listing(io.BytesIO(data))


TARGETS = [
    Target("dockerfiles", _dockerfiles, read_dockerfile),
    Target("dockerfile-words", _words, read_words),
    Target("dockerignores", _ignores, read_ignore),
    Target("added-archives", _archives, read_archive),
]
