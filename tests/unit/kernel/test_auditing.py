"""No call of the kernel, no route and no operation on files can be left out of the log unseen."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from starlette.routing import Route, WebSocketRoute

from agentkernel.guest import files as guest_files
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel import auditing
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.agents.login_boxes import LoginBoxes
from agentkernel.kernel.agents.logins import Logins
from agentkernel.kernel.agents.sessions import Sessions
from agentkernel.kernel.builds import Builds
from agentkernel.kernel.changes import Changes
from agentkernel.kernel.images import Images
from agentkernel.kernel.jobs import Jobs
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.looks import Looks
from agentkernel.kernel.network_control import NetworkControl
from agentkernel.kernel.ports import Ports
from agentkernel.kernel.secrets import Secrets
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.system import System
from agentkernel.kernel.templates import Templates
from agentkernel.kernel.tokens import Tokens
from agentkernel.kernel.uses import Uses
from agentkernel.kernel.volumes import Volumes
from agentkernel.kernel.workspaces import Workspaces
from agentkernel.server.app import Service, build_app

SERVER = Path(inspect.getfile(Service)).parent

# Every other public method has to be audited. Each with the reason why it need not be.
EXEMPT = {
    "Looks.get": "looks at a record",
    "Looks.list": "looks at records",
    "Looks.known": "looks at what holds and what was used",
    "Uses.look_at_limits": "tells of limits in events",
    "Looks.events": "looks at events",
    "Looks.wait_for_events": "looks at events",
    "Looks.statistics": "counts",
    "Looks.audit_lines": "looks at the log",
    "Looks.follow_audit": "looks at the log",
    "Uses.first_command": "says what is about to be run, whose line is written by exec",
    "Uses.judge": "says how a command ended, whose line is written by exec",
    "Uses.files": "each call of what it gives is audited: AuditedFiles",
    "Kernel.live": "what the reaper looks at",
    "Kernel.tell": "the reaper writes an event",
    "Jobs.list": "looks at records",
    "Jobs.get": "looks at a record",
    "Jobs.find": "looks at records",
    "Jobs.written": "looks at how much there is",
    "Jobs.outcome": "looks at a record",
    "Jobs.refresh": "brings rows up to date",
    "Jobs.refresh_all": "brings rows up to date",
    "NetworkControl.show": "looks at a record and counts",
    "NetworkControl.why": "explains, and sends nothing",
    "Ports.list": "looks at records",
    "Ports.connection": "a connection to what is published, whose line is written by publish",
    "Ports.open_new": "part of sandbox.create",
    "Workspaces.begin": "part of sandbox.create",
    "Workspaces.end": "part of sandbox.remove",
    "Workspaces.close": "lets go",
    "Ports.serve": "part of sandbox.create",
    "Ports.open_again": "part of sandbox.start, and of kernel.start",
    "Ports.open_all": "part of kernel.start",
    "Ports.close": "part of sandbox.stop and sandbox.remove",
    "Ports.close_all": "part of kernel.stop",
    "Secrets.list": "looks at names",
    "Secrets.resolve": "part of sandbox.create",
    "Secrets.keep": "of a part of the kernel, which has a line of its own",
    "Secrets.forget": "of a part of the kernel, which has a line of its own",
    "Secrets.values": "for the gateway",
    "Secrets.values_of": "for the gateway",
    "Secrets.close": "waits for what is being written",
    "Logins.start": "part of kernel.start; each refresh has a line",
    "Logins.close": "waits for what is being asked for",
    "Logins.use": "part of an agent's session; a refresh is in the record and in events",
    "Logins.files": "part of an agent's session",
    "Logins.refresh": "every request for a token has a line, whoever wants it: Refreshing",
    "Logins.status": "looks at a record",
    "Logins.list": "looks at records",
    "Tokens.load": "reads records",
    "Tokens.close": "waits for what is being written",
    "Tokens.list": "looks at records",
    "Tokens.check": "who is refused is in the log: `request`, by the door",
    "Tokens.over": "waits",
    "Templates.list": "looks at images",
    "Templates.get": "looks at an image",
    "Templates.begin": "part of sandbox.create and sandbox.start; its job has a line of its own",
    "Volumes.load": "part of kernel.start; what it removes is noted",
    "Volumes.list": "looks at records",
    "Volumes.inspect": "looks at a record, and measures",
    "Volumes.filling": "part of agent.install",
    "Volumes.find": "part of sandbox.create; a volume it makes has a line of its own",
    "Volumes.take_back": "part of sandbox.create; what it removes has a line of its own",
    "Volumes.hold": "part of sandbox.create and sandbox.start",
    "Volumes.hold_again": "part of kernel.start",
    "Volumes.release": "part of sandbox.stop and sandbox.remove",
    "Sessions.load": "part of kernel.start; what it takes back has lines of its own",
    "Sessions.close": "part of kernel.stop",
    "Sessions.trail": "the kernel's",
    "Sessions.get": "looks at a record",
    "Sessions.spec": "looks at a record",
    "Sessions.list": "looks at records",
    "Sessions.events": "looks at what was said",
    "Sessions.summary": "looks at records and events; the diff has a line",
    "Sessions.recording": "looks at what was shown",
    "Sessions.diff": "a workspace's, which has a line",
    "Sessions.apply": "a workspace's, which has a line",
    "Kits.load": "part of kernel.start",
    "Kits.close": "part of kernel.stop",
    "Kits.ready": "looks at what is there; what it installs has a line",
    "Kits.list": "looks at files and records",
    "Kits.get": "looks at files and records",
    "Kits.unused": "looks at what is there",
    "Kits.drop": "part of agent.remove, agent.update and system.prune: the volume's line",
    "Builds.context": "a place for what is uploaded; build has the line",
    "Images.ready": "part of sandbox.create; what it fetches has no line of its own",
    "Images.release": "part of sandbox.create",
    "Images.close": "part of kernel.stop",
    "Images.list": "looks at images",
    "Images.in_reach": "asks whether an image is there; what is fetched has a line",
    "Images.deciding": "looks at what is used",
    "Images.inspect": "looks at an image",
    "System.require_space": "part of sandbox.create",
    "System.df": "measures",
    "Images.unused": "looks at what is there",
}

# What a request leads to in the log. A route that is not here fails a test: decide what it is.
LOOKS = "looks"
ROUTES = {
    "GET /v1/version": LOOKS,
    "GET /v1/status": LOOKS,
    "POST /v1/shutdown": "kernel.stop_asked",
    "POST /v1/sandboxes": "sandbox.create",
    "GET /v1/sandboxes": LOOKS,
    "GET /v1/sandboxes/{id}": LOOKS,
    "DELETE /v1/sandboxes/{id}": "sandbox.remove",
    "POST /v1/sandboxes/{id}/start": "sandbox.start",
    "POST /v1/sandboxes/{id}/stop": "sandbox.stop",
    "POST /v1/sandboxes/{id}/extend": "sandbox.extend",
    "POST /v1/sandboxes/{id}/probe": "sandbox.probe",
    "POST /v1/sandboxes/{id}/exec": "exec",
    "POST /v1/run": "exec",
    "WS /v1/sandboxes/{id}/exec/stream": "exec",
    "WS /v1/run/stream": "exec",
    "POST /v1/sandboxes/{id}/jobs": "job.start",
    "GET /v1/sandboxes/{id}/jobs": LOOKS,
    "GET /v1/jobs/{job}": LOOKS,
    "POST /v1/jobs/{job}/signal": "job.signal",
    "WS /v1/jobs/{job}/attach": "job.attach",
    "GET /v1/sandboxes/{id}/files": "file.read",
    "PUT /v1/sandboxes/{id}/files": "file.write",
    "DELETE /v1/sandboxes/{id}/files": "file.remove",
    "GET /v1/sandboxes/{id}/tree": "tree.read",
    "PUT /v1/sandboxes/{id}/tree": "tree.write",
    "GET /v1/sandboxes/{id}/watch": "file.watch",
    "GET /v1/sandboxes/{id}/stat": LOOKS,
    "GET /v1/sandboxes/{id}/list": LOOKS,
    "POST /v1/sandboxes/{id}/mkdir": "file.mkdir",
    "POST /v1/sandboxes/{id}/move": "file.move",
    "GET /v1/sandboxes/{id}/network": LOOKS,
    "PUT /v1/sandboxes/{id}/network": "network.replace",
    "POST /v1/sandboxes/{id}/network/rules": "network.rule",
    "POST /v1/sandboxes/{id}/network/phase": "network.phase",
    "GET /v1/sandboxes/{id}/network/why": LOOKS,
    "GET /v1/sandboxes/{id}/network/log": LOOKS,
    "GET /v1/sandboxes/{id}/ports": LOOKS,
    "POST /v1/sandboxes/{id}/ports": "port.publish",
    "DELETE /v1/sandboxes/{id}/ports/{port}": "port.unpublish",
    "GET /v1/sandboxes/{id}/workspace/diff": "workspace.diff",
    "POST /v1/sandboxes/{id}/workspace/apply": "workspace.apply",
    "DELETE /v1/sandboxes/{id}/workspace": "workspace.discard",
    "GET /v1/images": LOOKS,
    "GET /v1/images/details": LOOKS,
    "POST /v1/images/pull": "image.pull",
    "PUT /v1/images/build": "image.build",
    "PUT /v1/images/archive": "image.load",
    "GET /v1/images/archive": "image.save",
    "POST /v1/images/import": "image.import",
    "POST /v1/images/tag": "image.tag",
    "POST /v1/images/prune": "image.prune",
    "DELETE /v1/images": "image.remove",
    "GET /v1/images/reach": LOOKS,
    "GET /v1/templates": LOOKS,
    "GET /v1/templates/{template}": LOOKS,
    "PUT /v1/templates/{template}": "template.build",
    "POST /v1/templates/{template}/source": "template.build",
    "DELETE /v1/templates/{template}": "template.remove",
    "GET /v1/agents": LOOKS,
    "GET /v1/agents/{agent}": LOOKS,
    "POST /v1/agents/{agent}/install": "agent.install",
    "DELETE /v1/agents/{agent}/kit": "agent.remove",
    "POST /v1/agent-sessions": "agent.start",
    "GET /v1/agent-sessions": LOOKS,
    "GET /v1/agent-sessions/{session}": LOOKS,
    "DELETE /v1/agent-sessions/{session}": "agent.forget",
    "POST /v1/agent-sessions/{session}/stop": "agent.stop",
    "GET /v1/agent-sessions/{session}/events": LOOKS,
    "POST /v1/agent-sessions/{session}/prompt": "agent.prompt",
    "POST /v1/agent-sessions/{session}/cancel": "agent.cancel",
    "POST /v1/agent-sessions/{session}/permission": "agent.answer",
    "GET /v1/agent-sessions/{session}/summary": LOOKS,
    "GET /v1/agent-sessions/{session}/diff": "workspace.diff",
    "POST /v1/agent-sessions/{session}/apply": "workspace.apply",
    "GET /v1/agent-sessions/{session}/recording": LOOKS,
    "GET /v1/agent-logins": LOOKS,
    "GET /v1/agents/{agent}/login": LOOKS,
    "PUT /v1/agents/{agent}/login": "agent.login",
    "DELETE /v1/agents/{agent}/login": "agent.logout",
    "POST /v1/agents/{agent}/login/refresh": "agent.refresh",
    "POST /v1/agents/{agent}/login/begin": "agent.login_begin",
    "POST /v1/agents/{agent}/login/harvest": "agent.login_end",
    "POST /v1/volumes": "volume.create",
    "GET /v1/volumes": LOOKS,
    "GET /v1/volumes/{volume}": LOOKS,
    "DELETE /v1/volumes/{volume}": "volume.remove",
    "GET /v1/volumes/{volume}/archive": "volume.export",
    "PUT /v1/volumes/{volume}/archive": "volume.import",
    "GET /v1/system/df": LOOKS,
    "POST /v1/system/prune": "system.prune",
    "GET /v1/events": LOOKS,
    "GET /v1/openapi.json": LOOKS,
    "POST /v1/run/batch": "exec",
    "PATCH /v1/sandboxes/{id}": "sandbox.update",
    "GET /v1/sandboxes/{id}/usage": LOOKS,
    "GET /v1/sandboxes/{id}/logs": LOOKS,
    "POST /v1/sandboxes/{id}/files": "file.write",
    "GET /v1/jobs": LOOKS,
    "GET /v1/jobs/{job}/output": "job.attach",
    "GET /v1/backends": LOOKS,
    "GET /v1/doctor": LOOKS,
    "GET /v1/audit": LOOKS,
    "GET /docs": LOOKS,
    "GET /metrics": LOOKS,
    "GET /v1/secrets": LOOKS,
    "PUT /v1/secrets/{name}": "secret.set",
    "DELETE /v1/secrets/{name}": "secret.remove",
    "POST /v1/tokens": "token.create",
    "GET /v1/tokens": LOOKS,
    "DELETE /v1/tokens/{token}": "token.revoke",
}


def public_methods() -> dict[str, Any]:
    return {
        f"{kind.__name__}.{name}": value
        for kind in (
            Kernel,
            Changes,
            Looks,
            Uses,
            Images,
            Builds,
            Jobs,
            Kits,
            NetworkControl,
            Ports,
            Secrets,
            Logins,
            Sessions,
            LoginBoxes,
            System,
            Tokens,
            Templates,
            Volumes,
            Workspaces,
        )
        for name, value in vars(kind).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }


def test_every_call_is_audited_or_has_its_reason() -> None:
    methods = public_methods()
    open_ones = {name for name, method in methods.items() if not hasattr(method, "audited")}
    assert open_ones == EXEMPT.keys(), "audit it (@audited), or say here why it need not be"


def test_every_parameter_is_shown_or_hidden_on_purpose() -> None:
    for name, method in public_methods().items():
        if hasattr(method, "audited"):
            parameters = set(inspect.signature(method).parameters) - {"self"}
            assert parameters <= auditing.SHOWN | auditing.HIDDEN, name


def test_every_audited_call_finds_its_target_first() -> None:
    """`found` writes the first line. It is called by `_find`, and by `create`."""
    for name, method in public_methods().items():
        if hasattr(method, "audited"):
            text = inspect.getsource(method)
            assert re.search(r"self\.(_find|_call|trail\.found)\(", text), name


def test_every_route_is_in_the_table() -> None:
    app: Any = build_app(Service(cast(Kernel, None)))
    found = set()
    for route in app._app.routes:
        if isinstance(route, WebSocketRoute):
            found.add(f"WS {route.path}")
        else:
            assert isinstance(route, Route) and route.methods
            found |= {f"{method} {route.path}" for method in route.methods - {"HEAD"}}
    assert found == ROUTES.keys()


def test_the_server_has_no_way_around_the_kernel() -> None:
    for path in SERVER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("GuestFiles", "GuestChannel"), path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
                assert (node.value.attr, node.attr) not in (
                    ("kernel", "live"), ("kernel", "_store"), ("kernel", "backends"),
                ), path  # fmt: skip


def test_files_reach_the_channel_by_two_ways_alone() -> None:
    tree = ast.parse(inspect.getsource(guest_files))
    (kind,) = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    users = {
        method.name
        for method in kind.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and node.attr == "_channel"
    }
    assert users == {"__init__", "_open", "_ask"}
    assert {"_open", "_ask"} <= vars(auditing.AuditedFiles).keys()


def test_no_value_of_an_environment_and_no_input_is_shown() -> None:
    shows = auditing._Shows()
    shown = shows.arguments(
        {
            "argv": ["a", "--token", "VALUE"],
            "options": ProcessOptions(env={"NAME": "VALUE"}, cwd="/w"),
            "spec": SandboxSpec(env={"OTHER": "VALUE"}, memory_bytes=1 << 30),
            "stdin": b"VALUE",
            "labels": {"api_key": "VALUE", "team": "web"},
            "owner": "VALUE",
            "unknown": "VALUE",
            "reason": "password=VALUE",
        }
    )
    text = msgspec.json.encode(shown)
    assert b"VALUE" not in text
    assert shown["cwd"] == "/w" and shown["stdin_bytes"] == 5
    assert shown["env"] == ["OTHER"] and shown["memory_bytes"] == 1 << 30
    assert "team=web" in shown["labels"]


@pytest.mark.parametrize("count", [0, 1, 32, 33, 10_000])
def test_names_are_bounded(count: int) -> None:
    options = ProcessOptions(env={f"N{number}" * 100: "v" for number in range(count)})
    shown = auditing._options(options).get("env", [])
    assert len(shown) <= 33 and all(len(name) <= 64 for name in shown)
