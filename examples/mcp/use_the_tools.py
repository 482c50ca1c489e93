"""Use the tools over MCP with the official client (`pip install mcp`), as an agent would."""

import asyncio
import os

from mcp import Client
from mcp.client.stdio import StdioServerParameters

# Any client of MCP takes the same command; `agentkernel mcp --help` says more.
SERVER = StdioServerParameters(command="agentkernel", args=["mcp"], env=dict(os.environ))


async def main() -> None:
    async with Client(SERVER) as client:
        tools = (await client.list_tools()).tools
        print("tools:", ", ".join(tool.name for tool in tools))

        async def call(name: str, /, **arguments: object) -> dict[str, object]:
            """What a tool answers, for a program; `content` has the same as text, for a model."""
            result = await client.call_tool(name, arguments)
            if result.is_error:
                raise SystemExit(f"{name}: {result.content}")
            return result.structured_content or {}

        # One command in a sandbox of its own.
        print("run:", (await call("run", command="echo $((6 * 7))"))["stdout"])

        # A sandbox that stays between calls: this client sees its own and nobody else's.
        await call("create", name="mcp-example")
        try:
            source = "print('hello from the sandbox')\n"
            await call("write_file", sandbox="mcp-example", path="/root/a.py", content=source)
            done = await call("exec", sandbox="mcp-example", command="python3 /root/a.py")
            print("exit code", done["exit_code"], "-", done["stdout"])
        finally:
            await call("remove", sandbox="mcp-example")
            print("removed")


asyncio.run(main())
