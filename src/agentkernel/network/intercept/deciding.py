"""Which hosts' TLS has to be intercepted because of secrets.

Asked at every new flow, so the first secret of a running sandbox switches interception on for the
flows after it. A verdict `inspect` asks for interception apart from this; a rule that splices wins
over secrets, because it says so.
"""

from __future__ import annotations

from agentkernel.network.policy.model import NetworkSetting, SecretBinding
from agentkernel.network.secrets.swapping import is_bound


def needs_interception(setting: NetworkSetting, host: str, port: int) -> bool:
    """True if a secret is bound to this place. `host`: a canonical name or an address."""
    return bool(bound_secrets(setting, host, port))


def bound_secrets(setting: NetworkSetting, host: str, port: int) -> tuple[SecretBinding, ...]:
    return tuple(binding for binding in setting.secrets if is_bound(binding, host, port))
