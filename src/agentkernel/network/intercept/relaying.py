"""Bytes both ways: what is left of a connection after it became a WebSocket."""

from __future__ import annotations

import asyncio

from agentkernel.network.gateway.flow import Subject
from agentkernel.network.intercept.guarding import Search
from agentkernel.network.intercept.wire import STALLED_SECONDS, Wire

HELD_SECONDS = 0.1
"""How long what may be the beginning of a secret waits for the rest of it."""


async def relay(client: Wire, far: Wire, subject: Subject, search: Search | None) -> None:
    """Until one side ends; the other has then got all that was sent. What the far side says is
    searched as bytes: a value that stands in one frame is replaced by a placeholder of the same
    length, and if that is not as long, the frames break, which is better than the value getting
    in. Raises CapReached, Lost, TimeoutError."""

    async def up() -> None:
        while data := await client.read():
            await subject.take(up=len(data))
            await far.write(data)

    async def down() -> None:
        patience = STALLED_SECONDS
        while True:
            try:
                data = await far.read(patience)
            except TimeoutError:
                if search is None or patience == STALLED_SECONDS:
                    raise
                # A message may end as a secret begins, and nothing may follow it for long.
                patience = STALLED_SECONDS
                await client.write(search.release())
                continue
            await subject.take(down=len(data))
            if search is None:
                await client.write(data)
            else:
                patience = HELD_SECONDS
                await client.write(search.pass_bytes(data) if data else search.finish())
            if not data:
                return

    tasks = [asyncio.create_task(up()), asyncio.create_task(down())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if tasks[0] in done:
            await far.close()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
