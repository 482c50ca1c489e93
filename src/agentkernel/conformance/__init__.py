"""What every engine must do, as functions that anybody can run on their own machine.

    async for result in check("runc", state_dir): ...

`agentkernel setup --check BACKEND` runs them for users, `tests/conformance` for us. A case makes
its own sandboxes, leaves nothing, and raises Failed where the engine breaks the contract of
`backends/base.py`. What an engine does not claim to do it must refuse: then that is tested.
"""

from __future__ import annotations

from agentkernel.conformance.bench import Bench, Failed, NotHere
from agentkernel.conformance.suite import CASES, Case, CaseResult, check

__all__ = ["CASES", "Bench", "Case", "CaseResult", "Failed", "NotHere", "check"]
