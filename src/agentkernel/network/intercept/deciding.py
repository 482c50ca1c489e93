"""Which hosts' TLS has to be intercepted because of secrets.

Asked at every new flow, so the first secret of a running sandbox switches interception on for the
flows after it. A verdict `inspect` asks for interception apart from this; a rule that splices wins
over both, because it says so.
"""

from __future__ import annotations

from agentkernel.network.policy.model import NetworkSetting, SecretBinding

SECRETS_PORT = 443


def needs_interception(setting: NetworkSetting, host: str, port: int) -> bool:
    """True if a secret is bound to this place. `host`: a canonical name or an address."""
    return bool(bound_secrets(setting, host, port))


def bound_secrets(setting: NetworkSetting, host: str, port: int) -> tuple[SecretBinding, ...]:
    return tuple(
        binding
        for binding in setting.secrets
        if any(names_place(target, host, port) for target in binding.hosts)
    )


def names_place(target: str, host: str, port: int) -> bool:
    """True if a binding's `target`, NAME or *.NAME with :PORT or 443, means this host and port. A
    bare "*" means none: a secret for every host is not one."""
    name, colon, number = target.rpartition(":")
    if not colon:
        name, number = target, str(SECRETS_PORT)
    if number != str(port):
        return False
    name = name.lower()
    if name.startswith("*."):
        return host.endswith(name[1:]) and len(host) > len(name) - 1
    return name == host
