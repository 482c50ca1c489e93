"""How often somebody may come: buckets that fill with time and are emptied by requests."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable


class Rates:
    """A bucket for each key. At most `most` keys are known; the one that was quiet longest is
    forgotten first, and is as good as new when it comes again."""

    def __init__(
        self,
        burst: float,
        per_second: float,
        most: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst = burst
        self._per_second = per_second
        self._most = most
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str) -> float:
        """0: it is within the rate, and counted. Else the seconds until one would be."""
        now = self._clock()
        left, at = self._buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        wait = 0.0 if left >= 1.0 else (1.0 - left) / self._per_second
        self._buckets[key] = (left if wait else left - 1.0, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait
