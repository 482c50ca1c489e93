"""The two doors of interception, for the gateway: connections that begin as HTTP, and TLS that has
to be read."""

from __future__ import annotations

import ssl

from agentkernel.errors import AgentKernelError
from agentkernel.network.gateway.flow import Dialler, Flow
from agentkernel.network.intercept.leaves import current_leaves
from agentkernel.network.intercept.session import Session
from agentkernel.network.intercept.wire import accept_wire


async def serve_http(flow: Flow, dialler: Dialler) -> None:
    """Takes over `flow.client`, of which nothing was consumed, and closes it. The answer to a
    verdict that denies is given here too. Tells every request's event."""
    try:
        client = await accept_wire(flow.client, None)
    except OSError:
        return
    await Session(flow, dialler, client, tls=False, named=False).run()


async def serve_tls(flow: Flow, dialler: Dialler, _hello: object = None) -> None:
    """As above, where the first bytes are a ClientHello. `leaves.keep_authority_in` has to be
    called before."""
    try:
        leaves = current_leaves()
        context = leaves.context(flow.host)
    except AgentKernelError as exc:
        flow.client.close()
        flow.subject.emit("network.fault", flow, reason=exc.message)
        return
    try:
        client = await accept_wire(flow.client, context)
    except (OSError, TimeoutError) as exc:
        flow.subject.emit("network.fault", flow, reason=_why(exc))
        return
    named = client.tls is not None and leaves.was_named(client.tls)
    await Session(flow, dialler, client, tls=True, named=named).run()


def _why(exc: Exception) -> str:
    """A client that is pinned to the host's own certificate, or trusts a bundle of its own, breaks
    off here; nothing else says so to whoever wonders."""
    if isinstance(exc, ssl.SSLError) and "UNKNOWN_CA" in (exc.reason or ""):
        return (
            "the client does not trust this installation's authority: it has its own bundle of "
            "certificates, or is pinned; allow splice:HOST to pass its TLS unread"
        )
    return "the client broke off its TLS; if it is pinned, allow splice:HOST to pass it unread"
