"""What a policy says of one connection, and of one request."""

from __future__ import annotations

from typing import Literal

import msgspec

from agentkernel.network.policy.model import Policy


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`inspect`: the first rule that could match asks for a method or a path, so the request has to
    be seen. `rule` is the number of the rule that decided (None: none did), in the sandbox's policy
    or the operator's floor; `words` is that for people and agents."""

    outcome: Literal["allow", "deny", "inspect"]
    words: str
    rule: int | None = None
    source: str = ""
    by_floor: bool = False
    private: bool = False
    splice: bool = False


def judge_connection(policy: Policy, floor: Policy | None, host: str, port: int) -> Verdict:
    """`host`: a canonical name or an address. Both policies have to allow."""
    raise NotImplementedError


def judge_request(
    policy: Policy, floor: Policy | None, host: str, port: int, method: str, path: str
) -> Verdict:
    """As above, once the request is seen; never `inspect`. `path` is without the query."""
    raise NotImplementedError
