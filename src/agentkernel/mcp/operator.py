"""What the person who runs the server allows: no tool, and so no model, gets more.

A sandbox's spec is theirs alone (flags and configuration). Of it a model chooses nothing; of times
it may ask for less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agentkernel.errors import PolicyDeniedError
from agentkernel.quantities import duration_text

AtEnd = Literal["stop", "remove"]

# Of a command whose caller says nothing. Clients lose patience at about a minute, unless told of
# progress.
DEFAULT_COMMAND_SECONDS = 120.0
LONGEST_COMMAND_SECONDS = 600.0
OUTPUT_BYTES = 8 << 20
IDLE_SECONDS = 3600.0
TTL_SECONDS = 7 * 86400.0


@dataclass(frozen=True)
class Operator:
    """`spec`: fields of a SandboxSpec, with `env`. The clocks are those of sandboxes that stay."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = LONGEST_COMMAND_SECONDS
    ttl_seconds: float = TTL_SECONDS
    idle_seconds: float = IDLE_SECONDS
    on_ttl: AtEnd = "remove"
    on_idle: AtEnd = "stop"

    def command_seconds(self, wanted: float | None) -> float:
        """How long a command in the foreground may take. PolicyDeniedError for more than that."""
        if wanted is None:
            return min(DEFAULT_COMMAND_SECONDS, self.timeout_seconds)
        if wanted > self.timeout_seconds:
            raise PolicyDeniedError(
                f"a command may take {duration_text(self.timeout_seconds)} at most here",
                hint="ask for less, or start a job, which may take longer",
            )
        return wanted

    @property
    def output_bytes(self) -> int:
        """What of each of stdout and stderr is kept to be paged through; the rest is counted."""
        return min(OUTPUT_BYTES, int(self.spec.get("command_output_bytes", OUTPUT_BYTES)))

    def spec_with(self, env: Mapping[str, str] | None) -> dict[str, Any]:
        """The spec of a sandbox with a model's variables in it. What a variable can do, a command
        of the model's can do too."""
        return {**self.spec, "env": {**self.spec.get("env", {}), **(env or {})}}

    def clocks_in_words(self) -> str:
        ends = {"stop": "stopped, with its files kept", "remove": "removed with its files"}
        return (
            f"Without a call, command or job for {duration_text(self.idle_seconds)} it is "
            f"{ends[self.on_idle]}; after {duration_text(self.ttl_seconds)} it is "
            f"{ends[self.on_ttl]}."
        )
