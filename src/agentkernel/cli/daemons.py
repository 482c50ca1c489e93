"""`agentkernel daemon …`: the process behind the other verbs. Sandboxes outlive it."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from agentkernel.cli.notices import tell_version
from agentkernel.cli.tables import span
from agentkernel.client._sync.transport import Transport
from agentkernel.client.remote import Remote
from agentkernel.errors import DaemonError

_NOT_RUNNING = 1
_LOG_BYTES = 1 << 20


def main(options: argparse.Namespace) -> int:
    verbs = {"status": _status, "stop": _stop, "restart": _restart, "logs": _logs}
    return verbs[options.verb](options, Transport(start=False))


def _ask(transport: Transport) -> dict[str, Any] | None:
    """What the daemon says of itself; None: there is none."""
    if not transport.daemon.answers():
        return None
    version: dict[str, Any] = transport.call("GET", "/v1/version")
    return version


def _status(options: argparse.Namespace, transport: Transport) -> int:
    version = _ask(transport)
    if version is None:
        body = {"running": False, "state_dir": transport.daemon.state_dir}
        words = "not running; the next command starts it"
        if isinstance(transport.daemon, Remote):
            body = {"running": False, "url": transport.daemon.url}
            words = f"nobody answers at {transport.daemon.url}"
        print(json.dumps(body) if options.json else words)
        return _NOT_RUNNING
    status = transport.call("GET", "/v1/status")
    transport.close()
    if options.json:
        print(json.dumps({"running": True, **version, **status}))
        return 0
    counts = ", ".join(f"{count} {state}" for state, count in status["sandboxes"].items() if count)
    jobs = ", ".join(f"{count} {state}" for state, count in status["jobs"].items() if count)
    print(f"running    for {span(status['uptime_seconds'])}, process {version['pid']}")
    print(f"version    {version['version']}")
    if version.get("state_dir"):
        print(f"state      {version['state_dir']}")
    if version.get("url"):
        print(f"listens    {version['url']}")
    print(f"sandboxes  {counts or 'none'}")
    print(f"jobs       {jobs or 'none'}")
    print(f"memory     {status['memory_bytes'] / (1 << 20):.0f} MiB")
    tell_version(transport)
    return 0


def _end(transport: Transport) -> int | None:
    version = _ask(transport)
    if version is None:
        return None
    pid: int = version["pid"]
    transport.call("POST", "/v1/shutdown")
    transport.close()
    transport.daemon.wait_gone(pid)
    return pid


def _stop(options: argparse.Namespace, transport: Transport) -> int:
    pid = _end(transport)
    if options.json:
        print(json.dumps({"stopped": pid is not None, "pid": pid}))
    else:
        print("not running" if pid is None else "stopped; sandboxes go on")
    return 0


def _restart(options: argparse.Namespace, transport: Transport) -> int:
    if isinstance(transport.daemon, Remote):
        transport.daemon.start()  # raises: that is not for us to do
    arguments = _arguments(transport)
    _end(transport)
    transport.daemon.start(arguments=arguments)
    version = _ask(transport)
    transport.close()
    if version is None:
        raise DaemonError("the daemon ended as soon as it had started")
    if options.json:
        print(json.dumps({"running": True, **version}))
    else:
        print(f"running, process {version['pid']}")
    return 0


def _arguments(transport: Transport) -> list[str]:
    """Where the daemon that runs was told to listen: the next one is to do so, too."""
    try:
        with open(os.path.join(transport.daemon.state_dir, "daemon.json"), "rb") as file:
            return [str(word) for word in json.load(file)["arguments"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _logs(options: argparse.Namespace, transport: Transport) -> int:
    try:
        with open(transport.daemon.log_path, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()[-options.lines :]
    except FileNotFoundError:
        lines = []
    if options.json:
        print(json.dumps({"path": transport.daemon.log_path, "lines": lines}))
    else:
        for line in lines:
            print(line)
    return 0
