"""What one door can do the others can too, or it stands here why not.

Three doors: the HTTP API (operations), the SDK (methods), the command line (verbs). A new one of
any of them fails a test here until its counterparts are named.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator

from agentkernel.cli.main import AGENTS, build_parser
from agentkernel.client._async import (
    agent_logins,
    agent_sessions,
    agents,
    commands,
    files,
    host,
    images,
    jobs,
    network,
    ports,
    sandbox,
    secrets,
    templates,
    tokens,
    volumes,
    workspace,
)
from agentkernel.server import openapi

CLASSES = {
    "Sandbox": sandbox.AsyncSandbox,
    "files": files.AsyncFiles,
    "jobs": jobs.AsyncJobs,
    "Job": jobs.AsyncJob,
    "ports": ports.AsyncPorts,
    "stream": commands.AsyncCommandStream,
    "Host": host.AsyncHost,
    "agents": agents.AsyncAgents,
    "agent_sessions": agent_sessions.AsyncAgentSessions,
    "AgentSession": agent_sessions.AsyncAgentSession,
    "agent_logins": agent_logins.AsyncAgentLogins,
    "images": images.AsyncImages,
    "network": network.AsyncNetwork,
    "secrets": secrets.AsyncSecrets,
    "templates": templates.AsyncTemplates,
    "tokens": tokens.AsyncTokens,
    "volumes": volumes.AsyncVolumes,
    "workspace": workspace.AsyncWorkspace,
}


class No(str):
    """There is none, and this is why."""


# Operation: methods of the SDK, verbs of the command line.
TABLE: dict[str, tuple[str | No, str | No]] = {
    "getVersion": ("Host.version", "daemon status, doctor"),
    "getStatus": ("Host.status", "daemon status, doctor"),
    "getOpenApi": ("Host.openapi", No("for programs; docs/reference/openapi.json has the same")),
    "getDocs": (No("a page for people"), No("a page for people with a browser")),
    "getMetrics": ("Host.metrics", No("for Prometheus; curl shows it")),
    "listSecrets": ("secrets.list", "secret list"),
    "setSecret": ("secrets.set, secrets.rotate", "secret set, secret rotate"),
    "removeSecret": ("secrets.remove", "secret remove"),
    "createToken": ("tokens.create", "token create"),
    "listTokens": ("tokens.list", "token list"),
    "revokeToken": ("tokens.revoke", "token revoke"),
    "shutDown": ("Host.shut_down", "daemon stop, daemon restart"),
    "listBackends": ("Host.backends", "setup"),
    "getHealth": ("Host.doctor", "doctor"),
    "listAudit": ("Host.audit, Host.follow_audit", "audit"),
    "createSandbox": ("Sandbox.create", "sandbox create"),
    "listSandboxes": ("Sandbox.list", "sandbox list, sandbox gc"),
    "getSandbox": ("Sandbox.connect, Sandbox.refresh", "sandbox info"),
    "getSandboxUsage": ("Sandbox.usage", "sandbox info"),
    "updateSandbox": ("Sandbox.update", "sandbox update"),
    "removeSandbox": ("Sandbox.remove", "sandbox remove, sandbox gc"),
    "startSandbox": ("Sandbox.start", "sandbox start"),
    "stopSandbox": ("Sandbox.stop", "sandbox stop"),
    "extendSandbox": ("Sandbox.extend", "sandbox extend"),
    "probeSandbox": ("Sandbox.probe", "doctor"),
    "listPorts": ("ports.list, Sandbox.preview_url", "port list"),
    "publishPort": ("ports.publish", "port publish"),
    "unpublishPort": ("ports.unpublish", "port unpublish"),
    "execInSandbox": ("Sandbox.exec", No("exec goes over the stream, which has signals and stdin")),
    "streamExecInSandbox": ("Sandbox.stream", "exec"),
    "run": ("Sandbox.run", No("run goes over the stream, which has signals and stdin")),
    "runBatch": ("Sandbox.run_batch", No("a shell has `&`, `wait` and xargs -P for that")),
    "streamRun": ("Sandbox.run_stream", "run"),
    "startJob": ("jobs.start", "job start"),
    "listSandboxJobs": ("jobs.list", "job list"),
    "listJobs": ("Host.jobs", "job list"),
    "getJob": ("jobs.get, Host.job, Job.refresh, Job.wait", "job info"),
    "signalJob": ("Job.signal, Job.kill", "job kill"),
    "attachJob": ("Job.output", "attach, job attach, job logs"),
    "streamJobOutput": (
        No("for clients without WebSockets: output goes over attachJob"),
        No("for clients without WebSockets: logs go over attachJob"),
    ),
    "readFile": ("files.read, files.read_bytes, files.read_stream", "sandbox cp"),
    "writeFile": ("files.write, files.append", "sandbox cp"),
    "uploadFiles": ("files.upload", No("sandbox cp sends directories as tar")),
    "removeFile": ("files.remove", No("`exec NAME -- rm` is shorter")),
    "statFile": ("files.stat, files.exists", "sandbox cp"),
    "listFiles": ("files.list", No("`exec NAME -- ls` is shorter")),
    "makeDirectory": ("files.mkdir", No("`exec NAME -- mkdir` is shorter")),
    "moveFile": ("files.move", No("`exec NAME -- mv` is shorter")),
    "downloadTree": ("files.download_tree, files.download_tar", "sandbox cp"),
    "uploadTree": ("files.upload_tree, files.upload_tar", "sandbox cp"),
    "watchFiles": (
        "files.watch",
        No("`exec` of a watcher shows more to people"),
    ),
    "getNetwork": ("network.show", "network show"),
    "replaceNetwork": ("network.replace", No("`network allow`, `deny` and `phase` change it")),
    "addNetworkRule": ("network.allow, network.deny", "network allow, network deny"),
    "switchNetworkPhase": ("network.phase", "network phase"),
    "explainNetwork": ("network.why", "network why"),
    "streamNetworkLog": ("network.log", "network log, network tail"),
    "createVolume": ("volumes.create", "volume create"),
    "listVolumes": ("volumes.list", "volume list"),
    "getVolume": ("volumes.get", "volume inspect"),
    "removeVolume": ("volumes.remove", "volume remove"),
    "exportVolume": ("volumes.export", "volume export"),
    "importVolume": ("volumes.import_archive", "volume import"),
    "getDiskUsage": ("Host.disk_usage", "system df"),
    "pruneSystem": ("Host.prune", "system prune"),
    "listImages": ("images.list", "image list"),
    "inspectImage": ("images.inspect", "image inspect"),
    "pullImage": ("images.pull", "image pull"),
    "buildImage": ("images.build", "image build"),
    "loadImages": ("images.load", "image load"),
    "saveImages": ("images.save, images.save_stream", "image save"),
    "importImage": ("images.import_directory", "image import"),
    "tagImage": ("images.tag", "image tag"),
    "pruneImages": ("images.prune", "image prune"),
    "removeImage": ("images.remove", "image remove"),
    "diffWorkspace": ("workspace.diff", "diff"),
    "applyWorkspace": ("workspace.apply", "apply"),
    "discardWorkspace": ("workspace.discard", "discard"),
    "findImage": ("images.in_reach", "detect"),
    "listTemplates": ("templates.list", "template list"),
    "getTemplate": ("templates.get", "template show"),
    "buildTemplate": ("templates.build", "template build"),
    "buildTemplateFromSource": ("templates.build_source", "template build"),
    "removeTemplate": ("templates.remove", "template remove"),
    "listAgents": ("agents.list", "agent list"),
    "getAgent": ("agents.get", "agent show"),
    "installAgent": ("agents.install, agents.update", "agent install, agent update"),
    "removeAgentKit": ("agents.remove", "agent remove"),
    "startAgentSession": ("agent_sessions.start", "agent run"),
    "listAgentSessions": ("agent_sessions.list", "agent sessions"),
    "getAgentSession": ("agent_sessions.get, AgentSession.refresh", "agent attach"),
    "removeAgentSession": ("AgentSession.remove", "agent forget"),
    "stopAgentSession": ("AgentSession.stop", "agent stop"),
    "streamAgentSessionEvents": ("AgentSession.events, AgentSession.wait", "replay"),
    "promptAgentSession": (
        "AgentSession.prompt, AgentSession.send_prompt",
        No("for programs; people have a terminal, or an editor by `acp`"),
    ),
    "cancelAgentSession": ("AgentSession.cancel", No("as promptAgentSession")),
    "answerAgentSession": ("AgentSession.answer", No("as promptAgentSession")),
    "summarizeAgentSession": ("AgentSession.summary", "agent summary"),
    "diffAgentSession": ("AgentSession.diff", "agent diff"),
    "applyAgentSession": ("AgentSession.apply", "agent apply"),
    "getAgentSessionRecording": ("AgentSession.recording", "replay"),
    "listAgentLogins": ("agent_logins.list", "agent status"),
    "getAgentLogin": ("agent_logins.get", "agent status, agent login"),
    "setAgentLogin": ("agent_logins.take_file, agent_logins.set_key", "agent login"),
    "removeAgentLogin": ("agent_logins.remove", "agent logout"),
    "refreshAgentLogin": ("agent_logins.refresh", "agent status"),
    "beginAgentLogin": ("agent_logins.begin", "agent login"),
    "harvestAgentLogin": ("agent_logins.harvest", "agent login"),
    "streamEvents": ("Host.events", "sandbox logs"),
    "streamSandboxLogs": ("Sandbox.logs", "sandbox logs"),
}
# Of a stream that is open, by a frame of it; or about no call at all.
METHODS_ALONE = {
    "Sandbox.agent": "agent_sessions with prompts: tests/acp",
    "stream.open": "opens it",
    "stream.started": "reads frames until it runs",
    "stream.read": "reads frames",
    "stream.wait": "reads frames to the end",
    "stream.write": "a frame of stdin",
    "stream.close_stdin": "the control frame eof",
    "stream.signal": "the control frame signal",
    "stream.kill": "the control frame kill",
    "stream.resize": "the control frame rows and columns",
    "stream.close": "closes it",
    "AgentSession.terminal": "attachJob, of its job",
}
VERBS_ALONE = {
    "info": "what would hold here; asks no daemon",
    "serve": "is the daemon",
    "mcp": "another door, with tools of its own: tests/mcp",
    "mcp install": "files of other programs",
    "mcp uninstall": "files of other programs",
    "daemon logs": "a file of the daemon's, for when it does not answer",
    "config show": "files of the user's, which the daemon does not read",
    "config path": "files of the user's",
    "config get": "files of the user's",
    "config set": "files of the user's",
    "config unset": "files of the user's",
    "config check": "files of the user's",
    "trust": "files of the user's",
    "completion": "for the shell",
    **dict.fromkeys(AGENTS, "as `agent run`"),
    "acp": "another door, for editors",
}


def methods() -> set[str]:
    return {
        f"{shown}.{name}"
        for shown, kind in CLASSES.items()
        for name, value in vars(kind).items()
        if not name.startswith("_") and not isinstance(value, property) and callable(
            getattr(kind, name)
        )
    }  # fmt: skip


def verbs(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[str]:
    groups = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    if not groups or not groups[0].required:
        yield " ".join(words)
    for group in groups:
        for name, inner in group.choices.items():
            yield from verbs(inner, (*words, name))


def named(column: int) -> set[str]:
    cells = [row[column] for row in TABLE.values()]
    return {name for cell in cells if not isinstance(cell, No) for name in cell.split(", ")}


def test_every_operation_has_its_counterparts() -> None:
    assert {operation.id for operation in openapi.operations()} == TABLE.keys()
    assert all(cell for row in TABLE.values() for cell in row)


def test_every_method_of_the_sdk_is_one() -> None:
    assert named(0) | METHODS_ALONE.keys() == methods()
    assert not named(0) & METHODS_ALONE.keys()


def test_every_verb_of_the_command_line_is_one() -> None:
    assert named(1) | VERBS_ALONE.keys() == set(verbs(build_parser()))
    assert not named(1) & VERBS_ALONE.keys()


def test_both_sdks_have_the_same_methods() -> None:
    from agentkernel.client import _sync
    from agentkernel.client._sync import (
        agent_logins,
        agent_sessions,
        agents,
        commands,
        files,
        host,
        images,
        jobs,
        network,
        ports,
        sandbox,
        secrets,
        templates,
        tokens,
        volumes,
        workspace,
    )

    assert _sync.__doc__
    twins = {
        "Sandbox": sandbox.Sandbox,
        "files": files.Files,
        "jobs": jobs.Jobs,
        "Job": jobs.Job,
        "ports": ports.Ports,
        "stream": commands.CommandStream,
        "Host": host.Host,
        "agents": agents.Agents,
        "agent_sessions": agent_sessions.AgentSessions,
        "AgentSession": agent_sessions.AgentSession,
        "agent_logins": agent_logins.AgentLogins,
        "images": images.Images,
        "network": network.Network,
        "secrets": secrets.Secrets,
        "templates": templates.Templates,
        "tokens": tokens.Tokens,
        "volumes": volumes.Volumes,
        "workspace": workspace.Workspace,
    }
    for shown, kind in CLASSES.items():
        for name in (one for one in vars(kind) if not one.startswith("_")):
            theirs = inspect.getattr_static(twins[shown], name)
            assert type(theirs) is type(inspect.getattr_static(kind, name))
