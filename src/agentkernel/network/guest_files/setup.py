"""All that a networked sandbox is given: clients' files, variables, the authority, the page."""

from __future__ import annotations

from collections.abc import Mapping

from agentkernel.network.guest_files.clients import Placeholder, Told
from agentkernel.network.guest_files.paths import (
    AUTHORITY,
    BUNDLE,
    GATEWAY,
    GUEST_ADDRESS,
    HTTP_PROXY,
    PAGE,
)
from agentkernel.network.policy.model import NetworkSetup
from agentkernel.network.registries.model import Machine

PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
NO_PROXY = f"localhost,127.0.0.1,::1,{GUEST_ADDRESS}"
BUNDLE_NAMES = (
    *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"),
    *("CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "NIX_SSL_CERT_FILE", "HTTPLIB2_CA_CERTS"),
    *("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"),
    # These trust it besides what they bring along, which lacks a company's own authority; so the
    # whole bundle, although it costs node 20 ms a start.
    *("NODE_EXTRA_CA_CERTS", "DENO_CERT"),
)
RESOLVER = f"""\
# Written by agentkernel: every query is answered by the sandbox's gateway, whatever stands here.
nameserver {GATEWAY}
"""


def network_setup(
    machine: Machine,
    authority_pem: str,
    *,
    proxied: bool = True,
    distribution: str | None = None,
    image_sources: Mapping[str, str] | None = None,
    placeholder: Placeholder | None = None,
    page: str = "",
) -> NetworkSetup:
    """What has to be inside. `Machine()` for a sandbox that the registries are not given to.

    `distribution` is that of the image ("debian bookworm", or "" if it does not say), since apt's
    sources are of one system; None for the image of the machine itself. `image_sources` are the
    image's own files of those. Without `placeholder` no credential is told. `page` is what agents
    may read of their network. The bundle itself is made from the image's, by whoever knows that.
    """
    told = Told(machine, placeholder or (lambda reference, value: None))
    told.add_all(distribution, image_sources or {})
    told.files["/etc/resolv.conf"] = RESOLVER
    told.files[AUTHORITY] = authority_pem
    if page:
        told.files[PAGE] = page
    return NetworkSetup(
        files=told.files,
        environment={
            **told.environment,
            **dict.fromkeys(BUNDLE_NAMES, BUNDLE),
            **(_proxies() if proxied else {}),
        },
        authority=authority_pem,
    )


def _proxies() -> dict[str, str]:
    """In both cases: curl reads http_proxy in small letters only, others only the capitals."""
    values = {**dict.fromkeys(PROXY_NAMES, HTTP_PROXY), "NO_PROXY": NO_PROXY}
    return values | {name.lower(): value for name, value in values.items()}
