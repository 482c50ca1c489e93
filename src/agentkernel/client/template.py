"""A template, written as a program: what it stands on, its steps, how its sandboxes begin.

template = (
    Template()
    .base("python:3.12-slim")
    .workdir("/app")
    .copy("requirements.txt", "/app/")
    .run("pip install -r requirements.txt")
    .copy("src", "/app/src")
    .start("python -m src.server")
    .ready(port=8000)
)
Host().templates.build("shop", template, context=".")
"""

from __future__ import annotations

from typing import Any

from agentkernel.errors import InvalidInputError


class Template:
    """Each call gives another template, so that one can be the beginning of several."""

    def __init__(self, **fields: Any) -> None:
        """`fields` as the HTTP API has them; usually none."""
        self._fields = fields

    def base(self, image: str) -> Template:
        return self._with(base=image)

    def run(self, command: str) -> Template:
        """A shell command, in a sandbox of its own."""
        return self._step(run=command)

    def copy(self, source: str, target: str, *, owner: str = "") -> Template:
        """Files of the context, by a path or a pattern in it."""
        return self._step(copy={"source": source, "target": target, "owner": owner})

    def env(self, **variables: str) -> Template:
        return self._step(env=variables)

    def workdir(self, path: str) -> Template:
        return self._step(workdir=path)

    def user(self, user: str) -> Template:
        return self._step(user=user)

    def start(self, command: str) -> Template:
        """A shell command that every start of a sandbox runs as a job."""
        return self._with(start=command)

    def ready(
        self,
        command: str | None = None,
        *,
        port: int | None = None,
        log: str | None = None,
        seconds: float = 60.0,
    ) -> Template:
        """When a sandbox may be used: a shell command ends with 0, a port takes connections, or the
        start command has written `log`. One of them."""
        given = {"command": command, "port": port, "log": log}
        wanted = {name: value for name, value in given.items() if value is not None}
        if len(wanted) != 1:
            raise InvalidInputError("a ready check has one of command, port and log")
        return self._with(ready={**wanted, "seconds": seconds})

    def description(self, text: str) -> Template:
        return self._with(description=text)

    def to_dict(self) -> dict[str, Any]:
        """As the HTTP API has it. InvalidInputError: there is no base."""
        if not self._fields.get("base"):
            raise InvalidInputError(
                "the template has no base", hint='begin with .base("debian:12")'
            )
        return dict(self._fields)

    def _step(self, **step: Any) -> Template:
        return self._with(steps=[*self._fields.get("steps", ()), step])

    def _with(self, **more: Any) -> Template:
        return Template(**{**self._fields, **more})
