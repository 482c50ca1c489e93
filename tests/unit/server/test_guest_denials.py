"""What was denied last, however much there is."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agentkernel.kernel.store import EventPage, EventRecord
from agentkernel.server.guest_tools import TOOLS, Guest

pytestmark = pytest.mark.anyio


class Events:
    """As many as there are, each of a host of its own."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read = 0

    async def events(self, after: int, *, limit: int, **filters: Any) -> EventPage:
        numbers = range(after + 1, min(self.count, after + limit) + 1)
        records = [
            EventRecord(
                seq=number, at=0.0, sandbox_id="s", owner="o", kind="network.deny",
                body={"host": f"h{number}", "reason": "no rule"},
            )
            for number in numbers
        ]  # fmt: skip
        self.read += len(records)
        next = records[-1].seq if len(records) == limit else self.count
        return EventPage(records=records, next=next, oldest=1, newest=self.count, gap=False)


@pytest.mark.parametrize("count", [0, 3, 40, 41, 999, 1000, 1001, 50_000])
async def test_the_last_are_found_without_reading_all(count: int) -> None:
    kernel = Events(count)

    class Record:
        id = "s"

    guest = Guest(cast(Any, kernel), cast(Any, Record()), cast(Any, None), cast(Any, None))
    answer = await TOOLS["network_denied"].call(guest, {})
    assert answer.body is not None
    hosts = [each["host"] for each in answer.body["denied"]]
    assert hosts == [f"h{number}" for number in range(max(1, count - 39), count + 1)]
    assert kernel.read <= 2000
