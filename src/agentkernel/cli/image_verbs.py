"""Arguments of the verbs about images."""

from __future__ import annotations

import argparse
from typing import Any

from agentkernel.cli.values import environment_entry, label_entry, size_value
from agentkernel.cli.verbs import _group, _verb

_PLATFORM = "such as linux/arm64 (default: this machine's)"


def add_image(commands: Any) -> None:
    verbs = _group(commands, "image", "images that sandboxes are made from")
    pull = _verb(verbs, "pull", "fetch images from their registries, or what changed of them")
    pull.add_argument("--platform", metavar="OS/ARCHITECTURE", help=_PLATFORM)
    _add_quiet(pull)
    pull.add_argument(
        "images", metavar="NAME[:TAG]", nargs="+",
        help="such as debian:12, ghcr.io/owner/app or app@sha256:DIGEST",
    )  # fmt: skip
    load = _verb(verbs, "load", "take the images of an archive: of `docker save`, or an OCI layout")
    load.add_argument("--name", metavar="NAME[:TAG]", help="of an archive with one image")
    load.add_argument("--platform", metavar="OS/ARCHITECTURE", help=_PLATFORM)
    _add_quiet(load)
    load.add_argument(
        "file", metavar="FILE", nargs="?", default="-",
        help="tar, plain or compressed by gzip or zstd, or the directory of an OCI layout "
        "(default: -, stdin)",
    )  # fmt: skip
    save = _verb(verbs, "save", "write images to one archive, which docker and podman load, too")
    save.add_argument("-o", "--output", metavar="FILE", default="-", help="(default: -, stdout)")
    save.add_argument(
        "--format", choices=("oci", "docker"), default="oci",
        help="oci (default): an OCI layout and one of `docker save` in one; docker: that alone",
    )  # fmt: skip
    _add_images(save)
    _add_import(_verb(verbs, "import", "make an image of a directory with a root file system"))
    _add_build(_verb(verbs, "build", "build an image from a Dockerfile, each step in a sandbox"))
    _verb(verbs, "list", "list the images that are here")
    inspect = _verb(verbs, "inspect", "show an image's config, layers, digests and sandboxes")
    inspect.add_argument("image", metavar="IMAGE", help="by name, id or digest")
    tag = _verb(verbs, "tag", "give an image one more name")
    tag.add_argument("image", metavar="IMAGE", help="by name, id or digest")
    tag.add_argument("name", metavar="NEW_NAME[:TAG]", help="how to call it, too")
    remove = _verb(verbs, "remove", "take names away, and with the last one the image")
    remove.add_argument(
        "-f", "--force", action="store_true",
        help="also the last name of one that sandboxes were made from, which keep what they need; "
        "also all names of an id at once",
    )  # fmt: skip
    _add_images(remove)
    prune = _verb(verbs, "prune", "remove what of the images nobody needs any more")
    prune.add_argument(
        "--all", action="store_true", help="also images with a name that no sandbox was made from"
    )


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", default="", help="as whom its commands run")
    parser.add_argument(
        "-e", "--env", action="append", default=[], type=environment_entry, metavar="NAME[=VALUE]",
        help="a variable of every command",
    )  # fmt: skip
    parser.add_argument(
        "--entrypoint", action="append", default=[], metavar="WORD",
        help="what every command begins with, word by word",
    )  # fmt: skip
    parser.add_argument(
        "--cmd", action="append", default=[], metavar="WORD",
        help="the command of those who give none, word by word",
    )  # fmt: skip
    parser.add_argument("-w", "--workdir", default="", metavar="DIR", help="where commands begin")
    parser.add_argument(
        "--label", action="append", default=[], type=label_entry, metavar="KEY=VALUE",
        help="a label of the image",
    )  # fmt: skip
    _add_quiet(parser)
    parser.add_argument("directory", metavar="SOURCE", help="a directory of this machine")
    parser.add_argument("name", metavar="NEW_NAME[:TAG]", help="how to call the image")


def _add_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--file", metavar="FILE",
        help="the Dockerfile (default: Dockerfile in CONTEXT; -: from stdin)",
    )  # fmt: skip
    parser.add_argument(
        "-t", "--tag", action="append", default=[], metavar="NAME[:TAG]",
        help="how to call the image; may be repeated",
    )  # fmt: skip
    parser.add_argument("--target", default="", metavar="STAGE", help="the stage to end with")
    parser.add_argument(
        "--build-arg", action="append", default=[], type=environment_entry,
        metavar="NAME[=VALUE]", help="a value for an ARG; without one, that of this environment",
    )  # fmt: skip
    parser.add_argument(
        "--label", action="append", default=[], type=label_entry, metavar="KEY=VALUE",
        help="a label of the image, beside its own",
    )  # fmt: skip
    parser.add_argument("--no-cache", action="store_true", help="carry out every step again")
    parser.add_argument(
        "--platform", default="", metavar="OS/ARCHITECTURE", help="only this machine's"
    )
    parser.add_argument(
        "--network", action="append", metavar="PRESET",
        help="what RUN may reach: registries (default), public, none, or another preset",
    )  # fmt: skip
    parser.add_argument(
        "--allow", action="append", metavar="HOST[:PORT]", help="a host that RUN may reach besides"
    )
    parser.add_argument(
        "--profile", choices=("permissive", "moderate", "restrictive"),
        help="of the steps' sandboxes (default: moderate)",
    )  # fmt: skip
    parser.add_argument("--memory", type=size_value, metavar="SIZE", help="of each step's sandbox")
    parser.add_argument("--cpus", type=float, metavar="COUNT", help="of each step's sandbox")
    parser.add_argument(
        "--progress", choices=("auto", "plain"), default="auto",
        help="plain lines either way",
    )  # fmt: skip
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the digest")
    parser.add_argument(
        "context", metavar="CONTEXT", help="a directory; -: the Dockerfile from stdin, and no files"
    )


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def _add_images(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "images", metavar="IMAGE", nargs="+", help="by name, id, its beginning, or digest"
    )
