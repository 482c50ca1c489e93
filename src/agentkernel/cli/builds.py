"""`agentkernel image build`: steps and their output as lines on stderr, the image on stdout."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from agentkernel.cli.local_files import local_errors
from agentkernel.cli.values import printable
from agentkernel.client._sync.images import Images
from agentkernel.errors import InvalidInputError

_STREAM = "-"
_MAX_STDIN = 4 << 20


def build(options: argparse.Namespace, images: Images) -> int:
    context, text = _context(options)
    shown = _Lines(options)
    more: dict[str, Any] = {
        "profile": options.profile,
        "memory_bytes": options.memory,
        "cpus": options.cpus,
        "platform": options.platform or None,
        "labels": dict(options.label) or None,
    }
    with local_errors(context or "the Dockerfile"):
        built = images.build(
            context,
            dockerfile=None if text is not None else options.file,
            text=text,
            tags=options.tag,
            target=options.target,
            build_args=dict(options.build_arg),
            no_cache=options.no_cache,
            network=_network(options),
            progress=shown.tell,
            **more,
        )
    if options.json:
        print(json.dumps({"event": "built", **built}), flush=True)
    elif options.quiet:
        print(built["digest"])
    else:
        cached = f", {built['cached']} of {built['layers']} layers from the cache"
        print(f"built in {built['seconds']:.1f} s{cached}", file=sys.stderr)
        for name in built["names"] or [""]:
            print(printable(f"{name}@{built['digest']}" if name else built["digest"]), flush=True)
    return 0


def _context(options: argparse.Namespace) -> tuple[str | None, str | None]:
    """The directory, and the Dockerfile's text if it comes by stdin."""
    if options.context == _STREAM and options.file not in (None, _STREAM):
        raise InvalidInputError(
            "with - there is no context, and the Dockerfile comes by stdin",
            hint="leave -f out, or name a directory",
        )
    text = None
    if _STREAM in (options.context, options.file):
        if sys.stdin.isatty():
            raise InvalidInputError("a Dockerfile is expected on stdin", hint="pipe one, or use -f")
        content = sys.stdin.buffer.read(_MAX_STDIN + 1)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise InvalidInputError("the Dockerfile on stdin is not UTF-8") from None
    if options.context == _STREAM:
        return None, text
    directory = os.path.expanduser(options.context)
    if not os.path.isdir(directory):
        raise InvalidInputError(
            f"the context {options.context!r} is no directory", hint="such as: ."
        )
    return directory, text


def _network(options: argparse.Namespace) -> dict[str, Any] | None:
    if options.network is None and not options.allow:
        return None
    network: dict[str, Any] = {"allow": options.allow or []}
    if options.network is not None:
        network["presets"] = options.network
    return network


class _Lines:
    """What is told, as it comes. A guest's output is kept from doing anything to a terminal."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._json = options.json
        self._quiet = options.quiet
        self._width = 1
        self._open = False

    def tell(self, kind: str, body: dict[str, Any]) -> None:
        if self._json:
            print(json.dumps({"event": kind, **body}), flush=True)
        elif not self._quiet:
            self._show(kind, body)

    def _show(self, kind: str, body: dict[str, Any]) -> None:
        if kind == "output":
            self._write(body["text"])
            return
        self._end_line()
        if kind == "started":
            self._width = len(str(body["steps"]))
            for note in body.get("notes", ()):
                self._line(f"note: {note}")
        elif kind == "step":
            number = f"{body['number']:>{self._width}}/{body['steps']}"
            stage = f"{body['stage']} " if body.get("stage") else ""
            self._line(f"[{stage}{number}] {body['text']}")
        elif kind == "done" and body.get("cached"):
            self._line("  cached")
        elif kind == "note":
            self._line(f"note: {body['text']}")

    def _write(self, text: str) -> None:
        if not text:
            return
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        shown = "\n".join(printable(line.replace("\t", "    ")) for line in lines)
        sys.stderr.write(shown)
        sys.stderr.flush()
        self._open = not shown.endswith("\n")

    def _end_line(self) -> None:
        if self._open:
            sys.stderr.write("\n")
        self._open = False

    def _line(self, text: str) -> None:
        first, *rest = text.split("\n")
        print(printable(first) + (" …" if rest else ""), file=sys.stderr, flush=True)
