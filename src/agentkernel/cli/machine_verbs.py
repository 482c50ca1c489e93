"""Arguments of the verbs about this machine, this install and its settings."""

from __future__ import annotations

from typing import Any

from agentkernel.cli.verbs import _group, _verb, add_config_option

SHELLS = ("bash", "zsh", "fish")


def add_config(commands: Any) -> None:
    verbs = _group(commands, "config", "the settings that hold here, and where they come from")
    show = _verb(verbs, "show", "show every setting, its value and where it comes from")
    add_config_option(show)
    _verb(verbs, "path", "show which files are read")
    get = _verb(verbs, "get", "show one setting's value")
    add_config_option(get)
    get.add_argument("key", metavar="KEY", help="such as limits.memory")
    change = _verb(verbs, "set", "write a setting into your config.toml")
    change.add_argument("key", metavar="KEY", help="such as limits.memory or env.NAME")
    change.add_argument("value", metavar="VALUE", help="such as 2G")
    unset = _verb(verbs, "unset", "take a setting out of your config.toml")
    unset.add_argument("key", metavar="KEY", help="such as limits.memory")
    check = _verb(verbs, "check", "read the files, and say what the project's would widen")
    check.add_argument("file", metavar="FILE", nargs="?", help="default: the one that is found")


def add_trust(commands: Any) -> None:
    parser = _verb(commands, "trust", "let a project's file widen what your defaults give")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--list", action="store_true", help="show the files that are trusted")
    choice.add_argument("--remove", action="store_true", help="do not trust FILE any more")
    parser.add_argument("file", metavar="FILE", nargs="?", help="default: the one that is found")


def add_doctor(commands: Any) -> None:
    _verb(commands, "doctor", "check this machine and this install; exit status 1 if one is unfit")


def add_completion(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a shell's completion script",
        description="Prints the completion script of a shell. The script asks agentkernel itself, "
        "so it fits any version; names of sandboxes are completed while the daemon runs.",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    # What the scripts call: the words typed so far, the last of which is to be completed.
    parser.add_argument("--words", nargs="...", help="==SUPPRESS==")
