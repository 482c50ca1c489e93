"""The tools as a server of the protocol, whatever carries it."""

from __future__ import annotations

import logging
import re
import traceback
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from agentkernel import __version__
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.errors import AgentKernelError
from agentkernel.mcp import (  # noqa: F401 (they add themselves)
    tools_commands,
    tools_files,
    tools_jobs,
    tools_sandboxes,
    tools_text,
)
from agentkernel.mcp.operator import Operator
from agentkernel.mcp.pages import Outputs
from agentkernel.mcp.registry import TOOLS, Answer, Session, Tool, UnderWay
from agentkernel.mcp.schemas import schema_of
from agentkernel.texts import encodable

INSTRUCTIONS = (
    "Sandboxes on this machine for running code that may be wrong or hostile. Each is a Linux "
    "machine with this host's programs, none of its files, and no network but what the person who "
    "runs this server allows, package registries at most unless they say otherwise. A connection "
    "that is denied says so and why: do not try it again. `run` is for one command or program that "
    "leaves nothing behind. `create` makes a sandbox that stays: use exec, write_file, read_file, "
    "edit_file, job_start and the others with its name, and remove it when you are done. Limits "
    "were set by the person who runs this server and can't be changed from here."
)
# Clients call themselves what they like, so any number of names may come.
_TRANSPORTS = 64
ERROR_META = "agentkernel/error"

log = logging.getLogger("agentkernel.mcp")
Context = ServerRequestContext[Any, Any]
# Who a request's caller acts for before the client's own name: None for the machine's user.
Principal = Callable[[Any], str | None]


class Service:
    """Tools for any number of connections. Each client has its own sandboxes and outputs."""

    def __init__(
        self,
        operator: Operator,
        *,
        state_dir: str | None = None,
        principal: Principal | None = None,
    ) -> None:
        self._operator = operator
        self._state_dir = state_dir
        self._principal = principal or (lambda request: None)
        self._outputs = Outputs()
        self._under_way = UnderWay()
        self._transports: OrderedDict[str, AsyncTransport] = OrderedDict()

    def server(self) -> Server[Any]:
        return Server(
            "agentkernel",
            version=__version__,
            title="agentkernel sandboxes",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=_input_schema,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(tool) for tool in TOOLS.values()])

    async def _call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no tool {params.name!r}")

        async def report(seconds: float, line: str) -> None:
            await context.session.report_progress(seconds, message=line)

        try:
            principal = self._principal(context.request)
            owner = self._owner(context, principal)
            session = Session(
                owner,
                self._transport(owner, users_spec=principal is None),
                self._operator,
                self._outputs,
                self._under_way,
                report,
            )
            return _result(await tool.call(session, params.arguments))
        except AgentKernelError as error:
            return _failure(error)
        except Exception as error:
            # Not the message: it may hold what a guest wrote, or a secret.
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("internal error: %s\n%s", type(error).__name__, places)
            return _failure(AgentKernelError("the tool failed", hint="the server's log says where"))

    def _owner(self, context: Context, principal: str | None) -> str:
        known = context.session.client_params
        name = owner_name(known.client_info.name if known else "")
        return name if principal is None else f"{principal}/{name}"

    def _transport(self, owner: str, *, users_spec: bool) -> AsyncTransport:
        """The spec is the operator's alone. Whoever came with a token, or as another owner, gets no
        more of it than they could ask for themselves; an owner says which of the two it is."""
        if owner not in self._transports:
            self._transports[owner] = AsyncTransport(
                self._state_dir, owner=owner, client="agentkernel-mcp", users_spec=users_spec
            )
        self._transports.move_to_end(owner)
        if len(self._transports) > _TRANSPORTS:
            _, oldest = self._transports.popitem(last=False)
            oldest.close()  # its idle connections; whoever uses it goes on
        return self._transports[owner]


def owner_name(client: str) -> str:
    """Whose sandboxes a client's are. What it calls itself may be anything."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", client.lower()).strip("-._")[:60]
    return f"mcp:{plain or 'unknown'}"


def _input_schema(name: str) -> dict[str, Any] | None:
    return described(TOOLS[name]).input_schema if name in TOOLS else None


@cache
def described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema_of(tool.arguments),
        output_schema=None if tool.body is None else schema_of(tool.body),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.effect == "reads",
            destructive_hint=tool.effect in ("changes", "destroys"),
            idempotent_hint=tool.effect == "reads",
            open_world_hint=False,  # nothing in a sandbox reaches anything else
        ),
    )


def _result(answer: Answer) -> types.CallToolResult:
    content: list[types.ContentBlock] = [
        types.TextContent(type="text", text=text) for text in answer.texts
    ]
    if answer.image is not None:
        data = b64encode(answer.image.data).decode()
        content.append(
            types.ImageContent(type="image", data=data, mime_type=answer.image.mime_type)
        )
    if answer.body is None:
        return types.CallToolResult(content=content)
    return types.CallToolResult(
        content=content, structured_content=msgspec.to_builtins(answer.body)
    )


def _failure(error: AgentKernelError) -> types.CallToolResult:
    """Text, as structured content has to be what the tool's schema says; and data for programs."""
    told = encodable(error.to_dict())
    text = f"{told['code']}: {told['message']}"
    if error.hint:
        text += f"\nhint: {told['hint']}"
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        is_error=True,
        _meta={ERROR_META: told},
    )
