"""Arguments of the verbs about templates."""

from __future__ import annotations

from typing import Any

from agentkernel.cli.values import count
from agentkernel.cli.verbs import _group, _verb


def add_template(commands: Any) -> None:
    verbs = _group(commands, "template", "images with a start command and a ready check")
    build = _verb(verbs, "build", "build a template, each step in a sandbox")
    build.description = (
        "Builds the template that [template] of agentkernel.toml describes, with the files beside "
        "it; or with --source one of a git repository, which is cloned in a sandbox, and whose "
        "runtime is found out and whose dependencies are installed in others."
    )
    build.add_argument(
        "name", metavar="NAME", nargs="?", help="how to call it (default: template.name)"
    )
    build.add_argument("-f", "--file", metavar="FILE", help="(default: agentkernel.toml here)")
    build.add_argument("--no-cache", action="store_true", help="carry out every step again")
    build.add_argument(
        "--network", action="append", metavar="PRESET",
        help="what steps may reach: registries (default), public, none, or another preset",
    )  # fmt: skip
    build.add_argument(
        "--allow", action="append", metavar="HOST[:PORT]", help="a host that they may reach besides"
    )
    group = build.add_argument_group("of a repository")
    group.add_argument("--source", metavar="URL[@REF]", help="https or http; a branch, tag, commit")
    group.add_argument("--base", metavar="IMAGE", help="in place of the one that is found out")
    group.add_argument(
        "--run", action="append", metavar="COMMAND",
        help="in place of what usually installs dependencies; may be repeated, '': nothing",
    )  # fmt: skip
    group.add_argument("--start", metavar="COMMAND", help="what every start of a sandbox runs")
    group.add_argument(
        "--ready-port", type=count, metavar="PORT", help="ready when this takes connections"
    )
    build.add_argument("-q", "--quiet", action="store_true", help="print only the name")
    _verb(verbs, "list", "list the templates that are here")
    show = _verb(verbs, "show", "show a template's steps, start command and ready check")
    show.add_argument("name", metavar="NAME", help="the template")
    remove = _verb(verbs, "remove", "remove templates")
    remove.add_argument(
        "-f", "--force", action="store_true",
        help="also where sandboxes were made from it, which keep what they need",
    )  # fmt: skip
    remove.add_argument("names", metavar="NAME", nargs="+", help="templates")
