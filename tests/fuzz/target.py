"""A fuzz target: how inputs are made, and what is done with them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentkernel.errors import AgentKernelError

# Of the processor, for one input: far beyond what any may take, far below a hang.
INPUT_SECONDS = 5.0
EXAMPLES = 100


@dataclass(frozen=True)
class Target:
    """`check` returns or raises an AgentKernelError; anything else is a finding."""

    name: str
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    also: tuple[type[Exception], ...] = ()  # what else is typed, at this door


executions = 0


def test_of(
    target: Target, examples: int = EXAMPLES, phases: Collection[Phase] = tuple(Phase)
) -> Callable[[], None]:
    """A function that tries inputs; hypothesis has given it a face for other fuzzers too."""

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(target.inputs)
    def try_inputs(value: Any) -> None:
        global executions
        executions += 1
        started = time.process_time()
        try:
            target.check(value)
        except AgentKernelError as error:
            # Every door shows it: it has to be printable as what the door says.
            str(error)
            json.dumps(error.to_dict(), default=repr)
        except target.also:
            pass
        taken = time.process_time() - started
        assert taken < INPUT_SECONDS, f"one input took {taken:.1f} s"

    return try_inputs


def seconds_each(count: int) -> float:
    """The share of one target of AGENTKERNEL_FUZZ_SECONDS; 0 in a normal run of the tests."""
    return float(os.environ.get("AGENTKERNEL_FUZZ_SECONDS") or 0) / count
