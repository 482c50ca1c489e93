"""`agentkernel image …`: what sandboxes are made from, besides this machine itself."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from agentkernel.cli.layer_bars import LayerBars, size_words
from agentkernel.cli.local_files import local_errors, read_all, write_all
from agentkernel.cli.notices import Connected
from agentkernel.cli.progress import Progress
from agentkernel.cli.several import for_each
from agentkernel.cli.tables import ago, show
from agentkernel.cli.values import printable
from agentkernel.client._sync.images import Images
from agentkernel.client.image_files import NewFile, archive_pieces
from agentkernel.client.results import ImageInfo
from agentkernel.errors import InvalidInputError

_STREAM = "-"


def main(options: argparse.Namespace) -> int:
    verbs: dict[str, Callable[[argparse.Namespace, Images], int]] = {
        "pull": _pull,
        "load": _load,
        "save": _save,
        "import": _import,
        "build": _build,
        "list": _list,
        "inspect": _inspect,
        "tag": _tag,
        "remove": _remove,
        "prune": _prune,
    }
    with Connected() as transport:
        return verbs[options.verb](options, Images(transport))


def _bars(options: argparse.Namespace) -> LayerBars:
    return LayerBars(quiet=options.quiet, as_json=options.json)


def _pull(options: argparse.Namespace, images: Images) -> int:
    with _bars(options) as bars:
        for name in options.images:
            image = images.pull(name, platform=options.platform, progress=bars)
            bars.clear()
            _made(options, image, name)
    return 0


def _load(options: argparse.Namespace, images: Images) -> int:
    if options.file == _STREAM and sys.stdin.isatty():
        raise InvalidInputError("an archive is expected on stdin", hint="name a file, or pipe one")
    quiet = options.quiet or options.json
    with local_errors(options.file), Progress(quiet=quiet) as progress, _bars(options) as bars:
        pieces = read_all(0) if options.file == _STREAM else archive_pieces(options.file)
        loaded = images.load(
            progress.pieces(pieces), name=options.name, platform=options.platform, progress=bars
        )
    for image in loaded:
        _made(options, image)
    return 0


def _save(options: argparse.Namespace, images: Images) -> int:
    to_stdout = options.output == _STREAM
    if to_stdout and options.json:
        raise InvalidInputError("--json and an archive can't both go to stdout")
    if to_stdout and sys.stdout.isatty():
        raise InvalidInputError(
            "an archive is nothing for a terminal", hint="give -o FILE, or pipe it"
        )
    archive = images.save_stream(*options.images, format=options.format)
    with Progress(quiet=options.json) as progress:
        if to_stdout:
            for piece in progress.pieces(archive):
                write_all(1, piece)
            return 0
        with local_errors(options.output), NewFile(options.output) as file:
            for piece in progress.pieces(archive):
                file.write(piece)
            size = file.keep()
    if options.json:
        print(json.dumps({"file": options.output, "bytes": size}))
    return 0


def _import(options: argparse.Namespace, images: Images) -> int:
    with _bars(options) as bars:
        image = images.import_directory(
            os.path.expanduser(options.directory),
            options.name,
            user=options.user,
            env=dict(options.env),
            entrypoint=options.entrypoint,
            cmd=options.cmd,
            working_dir=options.workdir,
            labels=dict(options.label),
            progress=bars,
        )
    return _made(options, image, options.name)


def _made(options: argparse.Namespace, image: ImageInfo, asked: str | None = None) -> int:
    """What is here now: with its digest, so that a script can hold on to it."""
    if options.json:
        print(json.dumps({"event": "image", **image.raw}), flush=True)
        return 0
    names = image.names or [image.digest]
    for name in [asked] if asked in names else names:
        digest = "" if "@" in str(name) or name == image.digest else f"@{image.digest}"
        print(printable(f"{name}{digest}"), flush=True)
    return 0


def _build(options: argparse.Namespace, images: Images) -> int:
    # What only this verb needs.
    from agentkernel.cli.builds import build

    return build(options, images)


def _list(options: argparse.Namespace, images: Images) -> int:
    found = images.list()
    if options.json:
        print(json.dumps({"images": [image.raw for image in found]}))
        return 0
    rows = [
        (
            name,
            _short(image.digest),
            size_words(image.size),
            _age(image.created),
            ",".join(image.sandboxes) or "-",
        )
        for image in found
        for name in image.names or ["-"]
    ]
    show(("NAME", "DIGEST", "SIZE", "CREATED", "USED BY"), rows)
    return 0


def _inspect(options: argparse.Namespace, images: Images) -> int:
    found = images.inspect(options.image)
    if options.json:
        print(json.dumps(found))
        return 0
    config = found["config"]
    lines = [
        ("names", ", ".join(found["names"]) or "-"),
        ("digest", found["digest"]),
        ("id", found["id"]),
        *([("index", found["index"])] if found["index"] else []),
        ("platform", found["platform"]),
        ("created", found["created"] or "-"),
        ("size", f"{size_words(found['size'])} compressed, {size_words(found['disk_bytes'])} "
         "on disk besides what is unpacked"),
        ("sandboxes", ", ".join(found["sandboxes"]) or "-"),
        *((key, _plain(value)) for key, value in config.items() if value),
        *(("layer", _layer(layer)) for layer in found["layers"]),
    ]  # fmt: skip
    width = max(len(key) for key, _ in lines)
    for key, value in lines:
        print(f"{printable(key):<{width}}  {printable(value)}")
    return 0


def _layer(layer: dict[str, Any]) -> str:
    state = "unpacked" if layer["unpacked"] else "not unpacked"
    return f"{layer['digest']}  {size_words(layer['size'])}, {state}"


def _tag(options: argparse.Namespace, images: Images) -> int:
    image = images.tag(options.image, options.name)
    print(json.dumps(image.raw) if options.json else printable(options.name))
    return 0


def _remove(options: argparse.Namespace, images: Images) -> int:
    def act(name: str) -> dict[str, Any]:
        return {"image": name, **images.remove(name, force=options.force)}

    return for_each(options.images, act, as_json=options.json, what="images")


def _prune(options: argparse.Namespace, images: Images) -> int:
    gone = images.prune(all=options.all)
    if options.json:
        print(json.dumps(gone))
        return 0
    for name in gone["untagged"]:
        print(f"removed {printable(name)}")
    print(
        f"{gone['blobs']} files and {gone['layers']} unpacked layers removed, "
        f"{size_words(gone['freed_bytes'])} freed"
    )
    return 0


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _age(created: str) -> str:
    """Of a moment as images write it; those that are made to be the same every time say 1970."""
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(created).timestamp()
    except (ValueError, OverflowError, OSError):
        return "-"
    return ago(moment) if moment > 0 else "-"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={entry}" for key, entry in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
