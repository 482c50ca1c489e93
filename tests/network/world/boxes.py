"""The daemon under test, with the world's configuration, and sandboxes in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ...server.daemon_process import Daemon
from .everything import World
from .guest import script, values

EVENT_SECONDS = 10.0


class WorldDaemon(Daemon):
    """A daemon whose user has the world's config.toml and nothing else of this machine's."""

    def __init__(self, place: Path, world: World, **config: Any) -> None:
        self.config_home = place / "config"
        state = place / "state"
        state.mkdir(mode=0o700, parents=True)
        world.configure(self.config_home, **config)
        self.world = world
        super().__init__(state)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "AGENTKERNEL_STATE_DIR": str(self.state_dir),
            "XDG_CONFIG_HOME": str(self.config_home),
        }

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "agentkernel", "serve", "--foreground", *arguments],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def cli(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command of the same user."""
        return subprocess.run(
            [sys.executable, "-m", "agentkernel", *words],
            input=stdin,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def box(self, **spec: Any) -> Box:
        return Box(self, self.create(**spec))


class Box:
    """A sandbox with a way out, and what it leaves behind in the daemon."""

    def __init__(self, daemon: WorldDaemon, id: str) -> None:
        self.daemon = daemon
        self.id = id
        found = self.daemon.exec(
            id,
            "for p in /usr/bin/python3 /usr/local/bin/python3 python3; do "
            "$p -I -c 'import ssl, sys; print(sys.executable)' 2> /dev/null && exit; done; exit 1",
        )
        assert found["exit_code"] == 0, f"the image has no python3 that runs: {found}"
        self.python = str(found["stdout"]).strip()

    def probe(self, source: str, **given: Any) -> dict[str, Any]:
        """Runs a probe inside; the one JSON object it prints."""
        status, done = self.daemon.request(
            "POST",
            f"/v1/sandboxes/{self.id}/exec",
            {"argv": [self.python, "-I", "-c", script(source)], "stdin": values(given)},
        )
        assert status == 200, done
        assert done["exit_code"] == 0, (done["stdout"][-2000:], done["stderr"][-4000:])
        answer = json.loads(done["stdout"])
        assert isinstance(answer, dict)
        return answer

    def try_all(self, cases: str, **given: Any) -> dict[str, dict[str, Any]]:
        """`cases`: a Python expression of a dict, label → function; all of them side by side."""
        found: dict[str, dict[str, Any]] = self.probe(
            f"answer(cases=side_by_side({cases}))", **given
        )["cases"]
        return found

    # -- what the daemon knows of it ------------------------------------------------------------

    def events(self) -> list[dict[str, Any]]:
        """Decisions of the network so far, oldest first: the kind beside the fields."""
        status, body = self.daemon.request("GET", f"/v1/sandboxes/{self.id}/network/log")
        assert status == 200, body
        lines = [line for line in body.splitlines() if line.startswith(b"data: ")]
        events = [json.loads(line.removeprefix(b"data: ")) for line in lines]
        return [{"kind": event["kind"], **event["body"]} for event in events]

    def event(self, kind: str, **wanted: Any) -> dict[str, Any]:
        """Waits for an event of this kind with these fields."""

        def found() -> dict[str, Any] | None:
            for event in self.events():
                if event["kind"] == kind and all(event.get(k) == v for k, v in wanted.items()):
                    return event
            return None

        try:
            event = eventually(found)
        except AssertionError:
            same = [event for event in self.events() if event.get("host") == wanted.get("host")]
            raise AssertionError(f"no {kind} with {wanted}; of that host: {same[-5:]}") from None
        assert isinstance(event, dict)
        return event

    def network(self) -> dict[str, Any]:
        """What it may reach, and its traffic so far."""
        status, body = self.daemon.request("GET", f"/v1/sandboxes/{self.id}/network")
        assert status == 200, body
        assert isinstance(body, dict)
        return body

    def refusals(self) -> int:
        """How often the kernel refused what is neither TCP nor a question for a name."""
        return sum(self.network()["traffic"]["refused"].values())

    def change(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """Changes its network: `PUT ""`, `POST "/rules"`, `POST "/phase"`."""
        status, answer = self.daemon.request(method, f"/v1/sandboxes/{self.id}/network{path}", body)
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer

    def shell(self, command: str, **body: Any) -> dict[str, Any]:
        return self.daemon.exec(self.id, command, **body)

    def remove(self) -> None:
        status, body = self.daemon.request("DELETE", f"/v1/sandboxes/{self.id}")
        assert status in (204, 404), body


def eventually(condition: Any, seconds: float = EVENT_SECONDS) -> Any:
    """The first true value of a condition."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.02)
    return value
