"""One target, guided by coverage: `python -m tests.fuzz.guided TARGET [libFuzzer's options]`.

atheris chooses the bytes, hypothesis turns them into inputs of the target's kind. Needs atheris
(`pip install atheris`), which has no part in the normal run of the tests.
"""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["agentkernel"]):
    from tests.fuzz import (
        callers,
        hostile_agent,
        hostile_archives,
        hostile_builds,
        hostile_daemon,
        hostile_guests,
        hostile_images,
        hostile_projects,
        models,
        target,
    )

TARGETS = {
    one.name: one
    for module in (
        *(hostile_agent, hostile_daemon, callers, hostile_images, hostile_archives),
        *(hostile_guests, hostile_projects, hostile_builds, models),
    )
    for one in module.TARGETS
}


def main() -> None:
    name, *options = sys.argv[1:]
    test = target.test_of(TARGETS[name])
    atheris.Setup([sys.argv[0], *options], test.hypothesis.fuzz_one_input)  # type: ignore[attr-defined]
    atheris.Fuzz()


if __name__ == "__main__":
    main()
