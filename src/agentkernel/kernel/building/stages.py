"""Which stages a build needs: the last, or the one that was asked for, and what they take from."""

from __future__ import annotations

from agentkernel.errors import InvalidInputError
from agentkernel.images.dockerfile.model import Build, Copy


def target_stage(build: Build, name: str) -> int:
    """Raises InvalidInputError."""
    if not build.stages:
        raise InvalidInputError("the build has no stage")
    if not name:
        return len(build.stages) - 1
    for index, stage in enumerate(build.stages):
        if stage.alias and stage.alias == name.lower():
            return index
    if name.isascii() and name.isdigit() and int(name) < len(build.stages):
        return int(name)
    known = ", ".join(stage.alias for stage in build.stages if stage.alias)
    raise InvalidInputError(
        f"there is no stage {name[:100]!r}", hint=f"there are: {known}" if known else None
    )


def needed_stages(build: Build, target: int) -> list[int]:
    """In the order in which they stand."""
    needed: set[int] = set()
    pending = [target]
    while pending:
        number = pending.pop()
        if number in needed:
            continue
        needed.add(number)
        stage = build.stages[number]
        names = [stage.base, *(step.origin for step in stage.steps if isinstance(step, Copy))]
        for name in names:
            pending += [
                index
                for index in range(number)
                if name
                and (build.stages[index].alias == name.lower() or _is(name, index, stage.base))
            ]
    return sorted(needed)


def _is(name: str, index: int, base: str) -> bool:
    """A stage may be called by its number, but not as what another begins with."""
    return name is not base and name.isascii() and name.isdigit() and int(name) == index
