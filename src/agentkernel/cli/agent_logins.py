"""`agentkernel agent login`, `logout` and `status`.

A key is read from stdin, from the terminal without being shown, or from a variable. Never from the
command line: every user of the machine can see that, and the shell keeps it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from agentkernel.cli.notices import Connected
from agentkernel.cli.outcome import say
from agentkernel.cli.tables import ago, show
from agentkernel.cli.values import printable
from agentkernel.client._sync.agent_logins import AgentLogins
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import AgentKernelError, InvalidInputError, NotFoundError

_MOST_BYTES = 64 << 10


def main(options: argparse.Namespace) -> int:
    verbs = {"login": _login, "logout": _logout, "status": _status}
    with Connected() as transport:
        return verbs[options.verb](options, transport)


# -- login ---------------------------------------------------------------------------------------


def _login(options: argparse.Namespace, transport: Transport) -> int:
    logins = AgentLogins(transport)
    if options.api_key or options.from_env or options.key is not None:
        return _told(options, _login_key(options, logins))
    if options.import_file is not None:
        return _told(options, _login_file(options, logins))
    known = logins.get(options.agent)
    if not known["can_log_in"]:
        keys = ", ".join(known["keys"])
        raise InvalidInputError(
            f"{options.agent} has no login that can be run in a sandbox",
            hint=f"give an API key ({keys}) with --api-key"
            + (", or a file of its own login with --import" if known["file"] else ""),
        )
    return _told(options, _login_inside(options, transport, logins))


def _login_key(options: argparse.Namespace, logins: AgentLogins) -> dict[str, Any]:
    names = [options.key] if options.key is not None else logins.get(options.agent)["keys"]
    if not names:
        raise InvalidInputError(f"{options.agent} takes no API key")
    if not options.from_env:
        return logins.set_key(options.agent, _value(names[0]), name=names[0])
    for name in names:
        if value := os.environ.get(name):
            return logins.set_key(options.agent, value, name=name)
    raise InvalidInputError(f"none of these variables is set here: {', '.join(names)}")


def _value(name: str) -> str:
    """What was given, without the one line's end that programs add."""
    if sys.stdin.isatty():
        from getpass import getpass

        value = getpass(f"{name} (not shown): ")
    else:
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InvalidInputError("that is too long for a key")
        value = data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    if not value:
        raise InvalidInputError("no key was given", hint="type it when asked, or send it on stdin")
    return value


def _login_file(options: argparse.Namespace, logins: AgentLogins) -> dict[str, Any]:
    path = options.import_file or logins.get(options.agent)["file"]
    if not path:
        raise InvalidInputError(
            f"{options.agent} keeps no login in a file", hint="give an API key with --api-key"
        )
    if path == "-":
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    else:
        place = os.path.expanduser(path)
        try:
            with open(place, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no {printable(place)}: {options.agent} is not logged in on this machine",
                hint=f"`agentkernel agent login {options.agent}` logs in from a sandbox",
            ) from None
        except OSError as exc:
            raise InvalidInputError(
                f"{printable(place)} can't be read: {os.strerror(exc.errno or 0)}"
            ) from None
    if len(data) > _MOST_BYTES:
        raise InvalidInputError("that is too long for the file of a login")
    taken = logins.take_file(options.agent, data.decode("utf-8", "replace"))
    if taken["refreshable"]:
        say(
            f"{options.agent}'s own copy of this login may be logged out by its next refresh here",
            "keep one of the two: a login of its own for sandboxes is made by "
            f"`agentkernel agent login {options.agent}`",
        )
    return taken


def _login_inside(
    options: argparse.Namespace, transport: Transport, logins: AgentLogins
) -> dict[str, Any]:
    from agentkernel.cli.foreground import fill_standard_descriptors, streamed
    from agentkernel.client.wire import segment

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInputError(
            f"the login of {options.agent} needs a terminal",
            hint="or give an API key with --api-key, or a file of its own login with --import",
        )
    fill_standard_descriptors()
    box = logins.begin(options.agent)
    say(printable(box["warning"]), printable(box.get("hint", "")) or None)
    try:
        path = f"/v1/sandboxes/{segment(box['sandbox'])}/exec/stream"
        command = {"argv": box["command"], "env": box["env"]}
        streamed(transport, path, command, argparse.Namespace(tty=True))
    except BaseException:
        _remove_box(transport, box["sandbox"])
        raise
    return logins.harvest(options.agent, box["sandbox"])


def _remove_box(transport: Transport, sandbox: str) -> None:
    from agentkernel.client.wire import segment

    try:
        transport.call("DELETE", f"/v1/sandboxes/{segment(sandbox)}")
    except AgentKernelError as error:
        say(f"the sandbox {sandbox} is still there: {error.message}", "it goes after 30 minutes")


# -- the others ----------------------------------------------------------------------------------


def _logout(options: argparse.Namespace, transport: Transport) -> int:
    gone = AgentLogins(transport).remove(options.agent)
    if options.json:
        print(json.dumps(gone))
        return 0
    print(gone["agent"])
    what = "the login" if gone["kind"] == "oauth" else "the key"
    say(f"{what} is forgotten here; the provider was not told, and still takes it",
        "revoke it in your account's settings if nobody is to use it any more")  # fmt: skip
    if gone["sandboxes"]:
        say(f"{', '.join(map(printable, gone['sandboxes']))} can't use it any more")
    return 0


def _status(options: argparse.Namespace, transport: Transport) -> int:
    logins = AgentLogins(transport)
    if options.refresh:
        if options.agent is None:
            raise InvalidInputError("--refresh is of one agent", hint="name it")
        logins.refresh(options.agent)
    if options.agent is not None:
        return _told(options, logins.get(options.agent))
    found = logins.list()
    if options.json:
        print(json.dumps({"logins": found}))
        return 0
    rows = [(one["agent"], _kind(one), _state(one), _ends(one), ago(one.get("refreshed_at")))
            for one in found]  # fmt: skip
    show(("AGENT", "LOGIN", "STATE", "ENDS", "REFRESHED"), rows)
    return 0


def _told(options: argparse.Namespace, status: dict[str, Any]) -> int:
    if options.json:
        print(json.dumps(status))
        return 0
    lines = [
        ("agent", status["agent"]),
        ("login", _kind(status)),
        ("account", status["account"]),
        ("state", _state(status)),
        ("problem", status["problem"]),
        ("ends", _ends(status)),
        ("refreshed", ago(status.get("refreshed_at"))),
        ("enters", status["enters"]),
        ("sandboxes", ", ".join(status["sandboxes"])),
    ]
    if status["kind"] == "none":
        lines += [("takes", status["about"]), ("keys", ", ".join(status["keys"]))]
    for name, value in lines:
        if value and value != "-":
            print(f"{name:<11}{printable(str(value))}")
    return 0


def _kind(status: dict[str, Any]) -> str:
    if status["kind"] == "key":
        return ", ".join(status["secrets"])
    return {"oauth": "subscription", "none": "none"}[status["kind"]]


def _state(status: dict[str, Any]) -> str:
    if status["state"] == "ended":
        return "log in again"
    return {"none": "-", "ok": "ok", "failing": "not refreshed"}[status["state"]]


def _ends(status: dict[str, Any]) -> str:
    """Of the access token: with a refresh token a new one comes before that."""
    ends = status.get("expires_at")
    if ends is None:
        return "-"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(ends))
    return f"{when}, refreshed before" if status["refreshable"] else when
