"""agentd's boot configuration; the keys are in docs/reference/guest-protocol.md."""

from __future__ import annotations

from typing import Any

import msgspec

from agentkernel.backends.base import Blueprint
from agentkernel.backends.local.cgroups import SandboxGroups
from agentkernel.backends.local.idmaps import IdMaps
from agentkernel.images.model import RootFilesystem
from agentkernel.security.capabilities import to_mask
from agentkernel.security.seccomp.compiler import compile_profile

_CONNECT_MS = 30_000
_PROCESS_OOM_SCORE = 200


def emulates_ownership(root: RootFilesystem, maps: IdMaps) -> bool:
    """Changing owners and users only seems to work: there is root and nobody else, in an image of
    which installers expect more."""
    return root.kind == "oci" and maps.single_id == 0


def boot_configuration(
    blueprint: Blueprint,
    root: RootFilesystem,
    maps: IdMaps,
    token: bytes,
    groups: SandboxGroups,
    listen: str | None,
) -> bytes:
    limits = blueprint.limits
    boot: dict[str, Any] = {
        "token": token,
        "ephemeral": blueprint.owned,
        "connect_ms": _CONNECT_MS,
        "cwd": blueprint.workspace.target if blueprint.workspace else root.cwd,
        # Where there is one id its group has the same number, whatever the image says.
        "user": blueprint.user if maps.single_id is None else str(maps.single_id),
        "caps": to_mask(blueprint.capabilities),
        "seccomp": compile_profile(
            blueprint.seccomp,
            blueprint.capabilities,
            allow_userns=blueprint.nested_userns,
            emulate_ids=emulates_ownership(root, maps),
        ),
        "oom_score_adj": _PROCESS_OOM_SCORE,
    }
    if listen is not None:
        boot["listen"] = listen
    if maps.single_id is not None:
        boot["single_uid"] = maps.single_id
    if limits.nofile is not None:
        boot["nofile"] = limits.nofile
    if "pids" not in groups.enforced:
        boot["nproc"] = limits.pids
    return msgspec.msgpack.encode(boot)
