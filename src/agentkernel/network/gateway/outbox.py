"""Events on their way to the daemon: the same ones counted together, few enough, none forgotten
without being counted.

A decision is told at once; the same again within a second is told once, with its number. A sandbox
that makes more different ones than its share has the rest told as one number, so no guest can flood
the daemon, or push another sandbox's events out.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from typing import Any

import msgspec

from agentkernel.network.gateway.messages import Events, NetworkEvent

SAME_SECONDS = 1.0
ROOM = 10_000
ROOM_OF_ONE = 2_500
RATE_OF_ONE = 100.0
BURST_OF_ONE = 400.0
BATCH = 500


class Bucket:
    """Tokens that come at a rate, up to a burst. May be overdrawn: then `wait` says for how long
    the next has to."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = time.monotonic()

    def _refill(self) -> None:
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self.rate)
        self._at = now

    def draw(self, count: float) -> float:
        """Takes them, and says how many seconds it takes until they are paid for."""
        self._refill()
        self._tokens -= count
        return max(0.0, -self._tokens / self.rate)

    def try_draw(self, count: float) -> bool:
        self._refill()
        if self._tokens < count:
            return False
        self._tokens -= count
        return True


class Outbox:
    def __init__(self) -> None:
        self._waiting: deque[NetworkEvent] = deque()
        self._held: Counter[str] = Counter()
        self._recent: dict[tuple[Any, ...], tuple[float, NetworkEvent, int]] = {}
        self._shares: dict[str, Bucket] = {}
        self._suppressed: Counter[str] = Counter()
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None
        self.filled = asyncio.Event()

    def add(self, event: NetworkEvent) -> None:
        key = msgspec.structs.astuple(event)[1:]
        if known := self._recent.get(key):
            self._recent[key] = (known[0], known[1], known[2] + event.times)
            return
        share = self._shares.get(event.sandbox)
        if share is None:
            share = self._shares[event.sandbox] = Bucket(RATE_OF_ONE, BURST_OF_ONE)
        if share.try_draw(1):
            self._recent[key] = (time.monotonic(), event, 0)
            self._push(event)
        else:
            self._suppressed[event.sandbox] += event.times
        self._schedule()

    def forget(self, sandbox: str) -> None:
        """Tells what is still to be told of a sandbox that is no more."""
        self._tell_repeats(lambda event, since: event.sandbox == sandbox)
        self._tell_suppressed()
        self._shares.pop(sandbox, None)

    def pull(self) -> Events | None:
        """The next batch, if there is one."""
        if not self._waiting and not self._dropped:
            self.filled.clear()
            return None
        count = min(len(self._waiting), BATCH)
        batch = tuple(self._waiting.popleft() for _ in range(count))
        self._held.subtract(event.sandbox for event in batch)
        self._held += Counter()
        dropped, self._dropped = self._dropped, 0
        return Events(events=batch, dropped=dropped)

    def put_back(self, batch: Events) -> None:
        """For a batch that could not be sent."""
        self._dropped += batch.dropped
        for event in reversed(batch.events):
            if len(self._waiting) >= ROOM:
                self._dropped += event.times
                continue
            self._waiting.appendleft(event)
            self._held[event.sandbox] += 1
        self.filled.set()

    def _push(self, event: NetworkEvent) -> None:
        if len(self._waiting) >= ROOM or self._held[event.sandbox] >= ROOM_OF_ONE:
            self._dropped += event.times
        else:
            self._waiting.append(event)
            self._held[event.sandbox] += 1
        self.filled.set()

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SAME_SECONDS / 4, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        self._tell_repeats(lambda event, since: now - since >= SAME_SECONDS)
        if not self._recent or now - min(s for s, _, _ in self._recent.values()) >= SAME_SECONDS:
            self._tell_suppressed()
        if self._recent or self._suppressed:
            self._schedule()

    def _tell_repeats(self, over: Any) -> None:
        for key, (since, event, repeats) in list(self._recent.items()):
            if over(event, since):
                del self._recent[key]
                if repeats:
                    self._push(msgspec.structs.replace(event, at=time.time(), times=repeats))

    def _tell_suppressed(self) -> None:
        for sandbox, count in self._suppressed.items():
            self._push(
                NetworkEvent(
                    at=time.time(),
                    sandbox=sandbox,
                    kind="network.limit",
                    via="tcp",
                    host="",
                    reason="so many decisions in so short a time are counted, not told one by one",
                    times=count,
                )
            )
        self._suppressed.clear()
