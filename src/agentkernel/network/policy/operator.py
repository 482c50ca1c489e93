"""The operator's settings from the values of the user's file, with what they mean checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agentkernel.config.addresses import joined
from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.model import Operator, Rule
from agentkernel.network.policy.names import parse_address, written_name
from agentkernel.network.policy.request import expand_floor
from agentkernel.network.policy.targets import parse_port, split_port
from agentkernel.network.secrets.dlp import check_pattern

_PROXY = re.compile(r"http://(?:[^/\s@]+@)?(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?/?\Z")


def operator_setting(values: Mapping[str, Any], registries: tuple[Rule, ...]) -> Operator:
    """`values` by dotted key, as `config.reading` gives them; other keys are not looked at.

    Raises InvalidInputError that names the key.
    """
    floor = values.get("network.floor")
    resolver = values.get("network.resolver")
    return Operator(
        hosts=_hosts(values.get("network.hosts", {})),
        floor=None if floor is None else _named("network.floor", expand_floor, floor, registries),
        resolver=None if resolver is None else _named("network.resolver", _resolver, resolver),
        upstream_ca=values.get("network.upstream_ca"),
        upstream_proxy=_proxy(values.get("network.upstream_proxy", "auto")),
        patterns=tuple(_patterns(values.get("network.patterns", ()))),
    )


def _patterns(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        _named("network.patterns", check_pattern, text)
        yield text


def _named(key: str, function: Any, *given: Any) -> Any:
    try:
        return function(*given)
    except InvalidInputError as exc:
        raise InvalidInputError(f"{key}: {exc.message}", hint=exc.hint, key=key) from None


def _hosts(entries: Mapping[str, str]) -> dict[str, str]:
    return {
        _named("network.hosts", written_name, name): str(
            _named("network.hosts", parse_address, address)
        )
        for name, address in entries.items()
    }


def _resolver(text: str) -> str:
    """An address, never a name: who would resolve it?"""
    host, port = split_port(text)
    return joined(str(parse_address(host)), parse_port(port or "53"))


def _proxy(text: str) -> str:
    if text not in ("auto", "none") and not _PROXY.match(text):
        raise InvalidInputError(
            "network.upstream_proxy is not the address of an HTTP proxy",
            hint='write "auto", "none" or http://HOST:PORT',
            key="network.upstream_proxy",
        )
    return text
