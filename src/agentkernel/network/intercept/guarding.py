"""Secrets in one exchange: swapped into the request, kept out of the response."""

from __future__ import annotations

from agentkernel.network.gateway.flow import Flow


class Guard:
    """Made for one request, from the setting as it is at that moment. `secure`: the far side is
    verified, and connection, TLS and request agree on whom it is for; only then is anything
    swapped."""

    def __init__(self, flow: Flow, *, secure: bool) -> None:
        self._flow = flow
        self._secure = secure
