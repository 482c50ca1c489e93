"""What an agent is told of where it is, as a file that it reads before anything else."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.agents.definition import AgentDefinition


def context_text(
    definition: AgentDefinition,
    *,
    workspace: str,
    network_page: str,
    secrets: Sequence[str],
    limits: Sequence[str],
    mcp_names: Sequence[str],
) -> str:
    """`network_page`: of `network.guest_files.page`. `secrets`: names of variables, never values.
    `limits`: sentences, such as "4 GiB of memory"."""
    raise NotImplementedError
