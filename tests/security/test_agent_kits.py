"""What runs while an agent is installed is somebody else's: it reaches its kit, package registries
and nothing else. Controls: the same code, in a sandbox that was given those things, gets them."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel.agents.definition import AgentDefinition, Commands, Install
from agentkernel.backends.base import VolumeMount
from agentkernel.errors import AgentInstallError
from agentkernel.kernel.agents.kit_model import KITS
from agentkernel.kernel.building.model import BuildEvent, BuildOutput
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.request import NetworkRequest

from .conftest import PLANTED_VARIABLE, Planted

# Arguments: files to read, a directory to write to, a port of the machine.
TRIES = """
import json, os, sys, urllib.request
files, directory, port, variable = json.loads(sys.argv[1])
found = {}
def attempt(name, work):
    try:
        found[name] = str(work())[:4096]
    except Exception as exc:
        found[name] = "refused: " + type(exc).__name__
for number, path in enumerate(files):
    attempt("read %d" % number, lambda: open(path).read())
attempt("write", lambda: open(directory + "/left-behind", "w").write("x"))
attempt("environment", lambda: os.environ[variable])
attempt("reach", lambda: urllib.request.urlopen(
    "http://host.agentkernel.internal:%d/secret" % port, timeout=10).read().decode())
attempt("other kits", lambda: os.listdir("/opt/agentkernel"))
print("FOUND " + json.dumps(found))
"""
GROWS = 'while :; do echo x >> "$0"; sleep 0.01; done'


@pytest.fixture(scope="module")
async def kernel(
    state_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kernel]:
    path = tmp_path_factory.mktemp("hostile-kits")
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    async with Kernel(path) as kernel:
        yield kernel


@pytest.fixture(scope="module")
def server(planted: Planted) -> Iterator[tuple[int, list[str]]]:
    """A service of this machine, and who came to it."""
    came: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(planted.secret.encode())

        def log_message(self, *_: Any) -> None:
            pass

    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield served.server_address[1], came
    served.shutdown()
    thread.join()
    served.server_close()


def agent(
    name: str, *steps: list[str], check: list[str] | None = None, hosts: list[str] | None = None
) -> AgentDefinition:
    return AgentDefinition(
        name=name,
        title=name,
        version="1",
        install=Install(steps=list(steps), check=check or [], hosts=hosts or []),
        command=Commands(headless=["true"]),
    )


async def installed(kernel: Kernel, definition: AgentDefinition) -> tuple[VolumeMount, str]:
    """Its kit, and what its installation wrote."""
    written: list[str] = []

    async def report(event: BuildEvent) -> None:
        if isinstance(event, BuildOutput):
            written.append(event.text)

    await kernel.agents.kits._made(definition, {}, report)
    return await kernel.agents.kits.ready(definition), "".join(written)


def found_in(output: str) -> dict[str, str]:
    (line,) = (line for line in output.splitlines() if line.startswith("FOUND "))
    found: dict[str, str] = json.loads(line.removeprefix("FOUND "))
    return found


async def test_an_installation_reaches_nothing_but_its_kit(
    kernel: Kernel, planted: Planted, server: tuple[int, list[str]], tmp_path: Path
) -> None:
    port, came = server
    (tmp_path / "secret").write_text(planted.secret)
    files = [*map(str, planted.files), str(tmp_path / "secret")]
    words = json.dumps([files, str(tmp_path), port, PLANTED_VARIABLE])
    await installed(kernel, agent("victim", ["sh", "-c", "echo mine > {kit}/mine"]))

    script = f"{TRIES}\nopen({KITS + '/hostile/made'!r}, 'w').write('x')"
    _, output = await installed(kernel, agent("hostile", ["python3", "-c", script, words]))
    found = found_in(output)
    assert planted.secret not in output
    refused = {name for name, said in found.items() if said.startswith("refused: ")}
    # A directory of that name may be made inside, where it is nobody's.
    assert found.keys() - refused <= {"other kits", "write"}
    assert found["other kits"] == "['hostile']"
    assert came == [] and sorted(os.listdir(tmp_path)) == ["secret"]

    # Control: a host that the definition names, which only the machine's user can write.
    service = f"host.agentkernel.internal:{port}"
    named = agent("named", ["python3", "-c", TRIES, words], hosts=[service])
    assert found_in((await installed(kernel, named))[1])["reach"] == planted.secret
    assert came == ["/secret"]
    came.clear()

    # Control: what was refused, given.
    spec = SandboxSpec(
        workspace=f"{tmp_path}:rw",
        workspace_secrets=True,
        network=NetworkRequest(presets=["none"], allow=[service]),
        env={PLANTED_VARIABLE: planted.secret},
    )
    record = await kernel.create(spec)
    given = json.dumps([["/workspace/secret"], "/workspace", port, PLANTED_VARIABLE])
    done = await kernel.run(record.id, ["python3", "-c", TRIES, given])
    await kernel.remove(record.id)
    control = found_in(done.stdout.decode())
    for name in ("read 0", "environment", "reach"):
        assert control[name] == planted.secret, control
    assert came == ["/secret"] and (tmp_path / "left-behind").exists()


async def test_nothing_of_an_installation_goes_on(kernel: Kernel) -> None:
    """What it left running is gone before anybody looks at the kit: the check sees it as it is ever
    after. The control is in the step: while its sandbox is there the file grows."""
    grows = "{kit}/grows"
    step = f"""
        : > {grows}
        setsid sh -c '{GROWS}' {grows} >/dev/null 2>&1 &
        until [ "$(wc -c < {grows})" -gt 20 ]; do sleep 0.01; done
    """
    definition = agent("growing", ["sh", "-c", step], check=["sh", "-c", f"wc -c < {grows}"])
    mount, output = await installed(kernel, definition)
    record = await kernel.create(
        SandboxSpec(network=NetworkRequest(presets=["none"])), mounts=[mount]
    )
    done = await kernel.run(record.id, ["sh", "-c", f"wc -c < {KITS}/growing/grows"])
    assert done.stdout.decode() == output and int(output) > 20
    await kernel.remove(record.id)


@pytest.mark.parametrize(
    "check",
    [
        ["sh", "-c", "echo x > {kit}/later"],
        ["python3", "-c", "import socket; socket.create_connection(('198.51.100.1', 80), 5)"],
    ],
    ids=["writes", "dials"],
)
async def test_the_check_has_a_kit_that_is_read_only_and_no_network(
    kernel: Kernel, check: list[str]
) -> None:
    with pytest.raises(AgentInstallError, match="does not work"):
        await installed(kernel, agent("late", ["true"], check=check))


async def test_a_sandbox_of_one_owner_adds_nothing_to_what_all_have(kernel: Kernel) -> None:
    """Who may run commands finds no sandbox of an installation, and its kit by no name."""
    mount, _ = await installed(kernel, agent("shared", ["sh", "-c", "echo mine > {kit}/mine"]))
    spec = SandboxSpec(network=NetworkRequest(presets=["none"]))
    record = await kernel.create(spec, owner="token:other", mounts=[mount])
    for line in (
        f"echo bad > {KITS}/shared/mine",
        f"rm {KITS}/shared/mine",
        f"mount -o remount,rw {KITS}/shared",
        f"chmod 777 {KITS}/shared",
    ):
        done = await kernel.run(record.id, ["sh", "-c", line])
        assert done.status.exit_code, line
    control = await kernel.run(record.id, ["sh", "-c", "echo mine > /root/x; cat /root/x"])
    assert control.status.exit_code == 0
    await kernel.remove(record.id)
    assert await kernel.volumes.list("token:other") == []
