"""Arguments of the verbs about this machine, this install and its settings."""

from __future__ import annotations

import argparse
from typing import Any

from agentkernel.cli.addresses import address, host_name, origin, real_path
from agentkernel.cli.values import (
    count,
    duration,
    environment_entry,
    label_entry,
    moment,
    port_entry,
    size_value,
)
from agentkernel.cli.verbs import (
    _group,
    _verb,
    add_config_option,
    add_life_options,
    add_sandbox_options,
)

MCP_CLIENTS = ("claude", "codex", "gemini", "opencode")
SHELLS = ("bash", "zsh", "fish")
SCOPES = ("read", "exec", "manage", "host-paths", "admin")


def add_serve(commands: Any) -> None:
    serve = commands.add_parser(
        "serve",
        help="run the daemon, which keeps sandboxes and serves the API",
        description="Starts the daemon of the state directory and returns when it is ready. Ending "
        "it leaves sandboxes and jobs running. With --listen it serves the API over TCP, too, to "
        "callers with a token; config.toml can say the same under [daemon].",
    )
    serve.add_argument(
        "--foreground", action="store_true", help="stay, with the log on stderr, until a signal"
    )
    group = serve.add_argument_group("network")
    group.add_argument(
        "--listen", type=address, metavar="HOST:PORT",
        help="serve over TCP as well, such as on 127.0.0.1:8700; port 0: any that is free",
    )  # fmt: skip
    group.add_argument("--tls-cert", type=real_path, metavar="FILE", help="certificate, PEM")
    group.add_argument("--tls-key", type=real_path, metavar="FILE", help="its key, PEM")
    group.add_argument(
        "--allow-host", action="append", dest="allow_hosts", type=host_name, metavar="NAME",
        help="what else it may be called in a request's Host",
    )  # fmt: skip
    group.add_argument(
        "--allow-origin", action="append", dest="allow_origins", type=origin, metavar="URL",
        help="a web page that may ask, such as https://app.example.org; a token it needs all the "
        "same",
    )  # fmt: skip
    group.add_argument(
        "--insecure-http", action="store_true",
        help="listen on an address beyond this machine without TLS",
    )  # fmt: skip
    serve.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)


def add_token(commands: Any) -> None:
    verbs = _group(commands, "token", "who may use the daemon over a network")
    create = _verb(verbs, "create", "make a token; it is printed once and never again")
    create.add_argument("name", metavar="NAME", help="how to call it")
    create.add_argument(
        "--scope", action="append", choices=SCOPES,
        help="what it may do (default: read, exec and manage); host-paths: show directories of "
        "this machine; admin: all sandboxes, tokens, the daemon",
    )  # fmt: skip
    create.add_argument(
        "--owner", metavar="OWNER",
        help="whose sandboxes it sees (default: its own, token:NAME); local: yours",
    )  # fmt: skip
    create.add_argument("--expires", type=duration, metavar="TIME", help="such as 12h or 30d")
    listing = _verb(verbs, "list", "list tokens; their secrets nobody has")
    listing.add_argument("--all", action="store_true", help="also those that ended")
    revoke = _verb(verbs, "revoke", "end a token, and all that it holds open")
    revoke.add_argument("tokens", metavar="TOKEN", nargs="+", help="by name or id")


def add_port(commands: Any) -> None:
    verbs = _group(commands, "port", "ports of sandboxes on this machine, and their previews")
    publish = _verb(verbs, "publish", "open a port of a sandbox; where it is is printed")
    publish.add_argument(
        "--public", action="store_true", help="its preview asks for no token: for everybody"
    )
    publish.add_argument("name", metavar="NAME", help="the sandbox, by name or id")
    publish.add_argument(
        "ports", metavar="[[ADDRESS:]HOST_PORT:]PORT", nargs="+", type=port_entry,
        help="such as 8000, 8080:8000, 0:8000 (a port that is free), 127.0.0.1:8080:8000; "
        "preview:8000: as a preview alone",
    )  # fmt: skip
    unpublish = _verb(verbs, "unpublish", "close ports of a sandbox and what is connected to them")
    unpublish.add_argument("name", metavar="NAME", help="the sandbox, by name or id")
    unpublish.add_argument("ports", metavar="PORT", nargs="+", type=count, help="the number inside")
    listing = _verb(verbs, "list", "list the published ports of a sandbox, and where they are")
    listing.add_argument("name", metavar="NAME", help="the sandbox, by name or id")


def add_volume(commands: Any) -> None:
    verbs = _group(commands, "volume", "directories with names that outlive sandboxes")
    create = _verb(verbs, "create", "make empty volumes")
    create.add_argument("names", metavar="NAME", nargs="+", help="how to call it")
    listing = _verb(verbs, "list", "list volumes, what they take, and who has them")
    listing.add_argument("--all", action="store_true", help="also those of other owners")
    inspect = _verb(verbs, "inspect", "show a volume")
    remove = _verb(verbs, "remove", "remove volumes with all that is in them")
    remove.add_argument(
        "--force", action="store_true",
        help="also if stopped sandboxes have it: they can't be started any more then",
    )  # fmt: skip
    remove.add_argument("names", metavar="VOLUME", nargs="+", help="by name or id")
    export = _verb(verbs, "export", "write all that is in a volume as a tar archive")
    importing = _verb(verbs, "import", "make a new volume from a tar archive")
    for parser in (inspect, export):
        parser.add_argument("name", metavar="VOLUME", help="by name or id")
    importing.add_argument("name", metavar="NAME", help="how to call it; there is none yet")
    for parser, what in ((export, "write to"), (importing, "read from")):
        parser.add_argument(
            "file", metavar="FILE", nargs="?", default="-",
            help=f"what to {what} (default: -, {'stdout' if parser is export else 'stdin'})",
        )  # fmt: skip
    for parser in (create, importing):
        parser.add_argument(
            "--quota", type=size_value, metavar="SIZE",
            help="a disk of its own of that size; needs root",
        )  # fmt: skip
        parser.add_argument(
            "--exclusive", action="store_true", help="at most one sandbox at a time runs with it"
        )


def add_system(commands: Any) -> None:
    verbs = _group(commands, "system", "what everything takes on the disk, and what can go")
    _verb(verbs, "df", "show what sandboxes, volumes, images and records take")
    prune = _verb(verbs, "prune", "remove layers, blobs and downloads that nothing needs")
    prune.add_argument("--sandboxes", action="store_true", help="and your stopped sandboxes")
    prune.add_argument("--volumes", action="store_true", help="and your volumes that none has")
    prune.add_argument("--dry-run", action="store_true", help="only show what would go")
    prune.add_argument("-y", "--yes", action="store_true", help="do not ask")


def add_network(commands: Any) -> None:
    verbs = _group(commands, "network", "what a sandbox may reach, why, and what it did")
    named = {
        name: _verb(verbs, name, about)
        for name, about in (
            ("show", "show its rules, its secrets' hosts and its traffic"),
            ("log", "show every decision about its connections, with the rule that made it"),
            ("tail", "show decisions as they are made"),
            ("why", "say what would become of a connection, by which rule; exit status 1: denied"),
            ("allow", "allow hosts, before all other rules"),
            ("deny", "deny hosts, before all other rules; open connections are closed"),
            ("phase", "go on with the policy of another phase"),
        )
    }
    for parser in named.values():
        parser.add_argument("name", metavar="NAME", help="the sandbox, by name or id")
    why = named["why"]
    why.add_argument("target", metavar="HOST[:PORT]", help="port 443 unless given")
    why.add_argument("--method", metavar="METHOD", help="of a request, such as GET")
    why.add_argument("--path", metavar="PATH", help="of a request, such as /simple/")
    for name in ("allow", "deny"):
        named[name].add_argument(
            "targets", metavar="HOST[:PORT]", nargs="+",
            help="a name, *.NAME, an address or a range; ports 80 and 443 unless given, :* any",
        )  # fmt: skip
        named[name].add_argument("--phase", metavar="PHASE", help="(default: the one that holds)")
    named["phase"].add_argument("phase", metavar="PHASE")


def add_secret(commands: Any) -> None:
    verbs = _group(commands, "secret", "values that sandboxes use without knowing them")
    change = _verb(verbs, "set", "set a secret; its value is read from stdin, or asked for")
    change.add_argument("name", metavar="NAME", help="such as GITHUB_TOKEN")
    rotate = _verb(verbs, "rotate", "give a secret another value, which sandboxes use at once")
    rotate.add_argument("name", metavar="NAME", help="one that is there")
    _verb(verbs, "list", "list secrets and the sandboxes they are bound to; no values")
    remove = _verb(verbs, "remove", "remove secrets, also such that are bound")
    remove.add_argument("secrets", metavar="NAME", nargs="+", help="by name")


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


def add_detect(commands: Any) -> None:
    parser = commands.add_parser(
        "detect",
        help="show which runtime a command or a project wants, and what `run` would take",
        description="Shows which runtime CMD wants in the project at DIR (default: here), in which "
        "version and who asks for it, which image has it, and what `run` would take, and why. "
        "Reads files and runs nothing of the project. Exit status 1: nothing tells.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "argv", nargs=argparse.REMAINDER, metavar="[DIR] [-- CMD]", help="the project, the command"
    )


def add_trust(commands: Any) -> None:
    parser = _verb(commands, "trust", "let a project's file widen what your defaults give")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--list", action="store_true", help="show the files that are trusted")
    choice.add_argument("--remove", action="store_true", help="do not trust FILE any more")
    parser.add_argument("file", metavar="FILE", nargs="?", help="default: the one that is found")


def add_doctor(commands: Any) -> None:
    parser = _verb(
        commands, "doctor", "check this machine and this install; exit status 1 if one is unfit"
    )
    parser.add_argument(
        "--probe", nargs="?", const="", metavar="NAME",
        help="try from inside what a guest can reach: in this running sandbox, or in a fresh one "
        "of the defaults that is removed afterwards",
    )  # fmt: skip


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


def add_audit(commands: Any) -> None:
    parser = commands.add_parser(
        "audit",
        help="show the audit log, or prove that it is as it was written",
        description="Shows what was done to sandboxes, by whom, and how it ended. Reads the log's "
        "files; no daemon is needed. With --verify the exit status is 1 if the log is not what was "
        "written.",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("-f", "--follow", action="store_true", help="wait for more")
    kinds.add_argument("--verify", action="store_true", help="check every line and every link")
    kinds.add_argument("--head", action="store_true", help="print the head: keep it elsewhere")
    parser.add_argument(
        "--against", metavar="HEAD", help="with --verify: the log must hold this head, kept before"
    )
    parser.add_argument(
        "--since", type=moment, metavar="TIME", help="such as 2h, or 2026-01-31T12:00"
    )
    parser.add_argument("--sandbox", metavar="NAME", help="only this one, by name or id")
    parser.add_argument(
        "-n", "--lines", type=count, metavar="N",
        help="the last N actions (default: 100; with --since all)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the lines as they are")


def add_mcp(commands: Any) -> None:
    parser = commands.add_parser(
        "mcp",
        help="serve sandboxes as tools to an MCP client on stdin and stdout, or install that",
        description="Without a VERB: serves sandboxes as tools to the MCP client that started it, "
        "on stdin and stdout, until that closes them. The options are what its sandboxes have; no "
        "tool lets a model have more. What the project's agentkernel.toml and your config.toml say "
        "holds where no option says otherwise.",
    )
    add_sandbox_options(parser, image=False)
    parser.add_argument(
        "--image", metavar="IMAGE",
        help="what its sandboxes are made from: `host` (the default) or NAME[:TAG]; no directory",
    )  # fmt: skip
    parser.add_argument(
        "--pull",
        choices=("missing", "always", "never"),
        help="when to ask the registry for the image (default: missing)",
    )
    parser.add_argument(
        "-e", "--env", action="append", default=[], type=environment_entry, metavar="NAME[=VALUE]",
        help="a variable for every command in every sandbox",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=duration, metavar="TIME",
        help="longest a command in the foreground may be asked to take (default: 10m)",
    )  # fmt: skip
    life = add_life_options(
        parser, ttl="(default: 7d)", idle="(default: 1h)",
        on_ttl="(default: remove)", on_idle="(default: stop)",
    )  # fmt: skip
    life.add_argument(
        "--label", action="append", default=[], type=label_entry, metavar="KEY=VALUE",
        help="to find its sandboxes by",
    )  # fmt: skip
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=False, prog="agentkernel mcp"
    )
    install = _verb(verbs, "install", "add this server to a client's configuration")
    install.description = (
        "Adds this server to a client's configuration, or brings its entry up to date; comments "
        "and other servers stay as they are, and the file as it was is kept beside it "
        "(.agentkernel-backup)."
    )
    _add_client(install)
    install.add_argument(
        "--print", action="store_true", help="show what would be added, and change nothing"
    )
    install.add_argument(
        "--args", default="", metavar="FLAGS",
        help='for `agentkernel mcp` at every start, such as "--memory 1G --timeout 5m"',
    )  # fmt: skip
    _add_client(_verb(verbs, "uninstall", "take this server out of a client's configuration"))


def add_diff(commands: Any) -> None:
    parser = commands.add_parser(
        "diff",
        help="show what a sandbox has changed in its workspace",
        description="Shows what the sandbox NAME has changed in its copy-on-write workspace, as a "
        "patch that `git apply` takes. The directory itself is as it was.",
    )
    parser.add_argument("--stat", action="store_true", help="a line a file instead of the patch")
    parser.add_argument("--json", action="store_true", help="print JSON, with the patch in it")
    parser.add_argument("name", metavar="NAME", help="the sandbox")


def add_apply(commands: Any) -> None:
    parser = commands.add_parser(
        "apply",
        help="make a sandbox's changes in its workspace here, too",
        description="Makes what the sandbox NAME has changed in its copy-on-write workspace, or "
        "what it has at PATHS, in the directory itself. A file that was changed here, too, since "
        "the sandbox was made is merged line by line; where both have changed the same lines it is "
        "left as it is and told as a conflict, and the sandbox's is still in the sandbox. Exit "
        "status 1: not all is applied.",
    )
    parser.add_argument(
        "--conflicts", choices=("leave", "markers"), default="leave",
        help="a text in which both have changed the same lines: left as it is (default), or "
        "written with both, between marks",
    )  # fmt: skip
    parser.add_argument(
        "--commit", action="store_true",
        help="make a commit of them instead: on the sandbox's branch, or on refs/agentkernel/NAME "
        "if that is checked out here; neither files nor index here are touched",
    )  # fmt: skip
    parser.add_argument("-m", "--message", metavar="TEXT", help="the commit's message")
    parser.add_argument(
        "--allow-risky", action="store_true",
        help="also what makes other programs run something (.git, editor, shell and agent "
        "configuration, workflows) and links that lead out",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("name", metavar="NAME", help="the sandbox")
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", help="only this and what is below it (default: all)"
    )


def add_discard(commands: Any) -> None:
    parser = commands.add_parser(
        "discard",
        help="forget what a stopped sandbox has changed in its workspace",
        description="Removes what the stopped sandbox NAME has changed in its copy-on-write "
        "workspace. When it is started again it has the directory as it is.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("name", metavar="NAME", help="the sandbox")


def _add_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scope", choices=("user", "project"), default="user",
        help="your own configuration (default), or that of the project in this directory",
    )  # fmt: skip
    parser.add_argument(
        "--name", dest="server_name", default="agentkernel", metavar="NAME",
        help="how the client calls the server (default: agentkernel)",
    )  # fmt: skip
    parser.add_argument(
        "client", choices=MCP_CLIENTS, metavar="CLIENT", help="claude, codex, gemini or opencode"
    )
