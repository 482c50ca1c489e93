"""Run many pieces of work at once, each in a sandbox of its own."""

import asyncio

import agentkernel

WORK = [f"print(sum(range({n})))" for n in (10, 100, 1000, 10_000)]
AT_ONCE = 2


async def main() -> None:
    # More at once than the machine has processors only makes each of them slower.
    room = asyncio.Semaphore(AT_ONCE)

    async def one(source: str) -> str:
        async with room:
            result = await agentkernel.arun(["python3", "-c", source], timeout_seconds=30)
        return result.stdout.strip() if result.ok else f"{result.outcome}: {result.stderr}"

    for source, answer in zip(WORK, await asyncio.gather(*map(one, WORK)), strict=True):
        print(source, "->", answer)


asyncio.run(main())
