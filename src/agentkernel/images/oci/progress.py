"""How far the fetching of an image is: one event a layer and change, for bars and for streams.

Every layer is first told of as `waiting` or `present`, before anything is fetched, so that a reader
who adds up the totals knows from the beginning how much there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

# In this order, of which a layer skips what does not concern it:
#   waiting    it is not here; its turn comes
#   elsewhere  another process is fetching it; we wait for that one
#   fetching   bytes come; also after a broken connection, when the count may go back
#   fetched    it is here whole and verified
#   present    it was here before: nothing is fetched
#   unpacking  its files are being written; `done` counts compressed bytes, from 0 again
#   ready      it can be used
State = Literal["waiting", "elsewhere", "fetching", "fetched", "present", "unpacking", "ready"]

SHORT = 12


@dataclass(frozen=True, slots=True)
class PullProgress:
    """`layer` is the digest of the compressed layer, `done` and `total` are bytes of it."""

    layer: str
    state: State
    done: int
    total: int

    @property
    def short(self) -> str:
        """The digest as people are shown it."""
        return self.layer.removeprefix("sha256:")[:SHORT]

    def to_dict(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "state": self.state,
            "done": self.done,
            "total": self.total,
        }


# Called in the thread that does the work: the event loop's while fetching, a worker's while
# unpacking. It must return at once.
Report = Callable[[PullProgress], None]


class Overall:
    """The sum over all layers, from their events."""

    def __init__(self) -> None:
        self._layers: dict[str, PullProgress] = {}

    def add(self, event: PullProgress) -> None:
        self._layers[event.layer] = event

    @property
    def layers(self) -> list[PullProgress]:
        """The last of each, in the order in which they were first told of: lowest layer first."""
        return list(self._layers.values())

    @property
    def to_fetch(self) -> int:
        return sum(event.total for event in self._layers.values() if event.state != "present")

    @property
    def fetched(self) -> int:
        whole = ("fetched", "unpacking", "ready")
        return sum(
            event.total if event.state in whole else event.done
            for event in self._layers.values()
            if event.state != "present"
        )
