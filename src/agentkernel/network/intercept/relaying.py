"""Bytes both ways, unread: what is left of a connection after it became a WebSocket."""

from __future__ import annotations

import asyncio

from agentkernel.network.gateway.flow import Subject
from agentkernel.network.intercept.wire import Wire


async def relay(client: Wire, far: Wire, subject: Subject) -> None:
    """Until one side ends; the other has then got all that was sent. Raises CapReached, Lost,
    TimeoutError."""

    async def up() -> None:
        while data := await client.read():
            await subject.take(up=len(data))
            await far.write(data)

    async def down() -> None:
        while data := await far.read():
            await subject.take(down=len(data))
            await client.write(data)

    tasks = [asyncio.create_task(up()), asyncio.create_task(down())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if tasks[0] in done:
            await far.close(reading=False)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
