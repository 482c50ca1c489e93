"""What is stored of a sandbox's network, expanded: no preset's name decides anything later.

The first rule that matches decides; where none does, the answer is no. So an empty list of rules
means no network.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Action = Literal["allow", "deny"]
Tls = Literal["auto", "splice"]
Port = Annotated[int, Meta(ge=1, le=65535)]

ANY_NAME = "*"
DEFAULT_PORTS = (80, 443)
"""What `--allow HOST` without a port means."""
FIRST_PHASE = "default"
THIS_MACHINE = "host.agentkernel.internal"
"""What sandboxes call the machine they are on: there, `localhost` is the sandbox itself. A rule
that names it, with ports, leads to the machine's 127.0.0.1."""
MCP_MACHINE = "mcp.agentkernel.internal"
"""The same, for MCP servers there: requests say that they are for localhost, as those servers want
to hear, and a secret that is bound to it is put in without TLS, which it needs nowhere else."""
TOOLS_HOST = "tools.agentkernel.internal"
"""What a sandbox calls the daemon's tools for it: they are for the sandbox that the connection is
of, and there is nothing that it could show to be taken for another."""
TOOLS_PORT = 80
TOOLS_PATH = "/mcp"
TOOLS_SOCKET = "tools.sock"
"""Where the daemon serves them, in the state directory. A connection begins with the line
`TOOLS_GREETING ID`, which the gateway says; all that follows is HTTP of the guest's."""
TOOLS_GREETING = "agentkernel-tools/1"
OUR_NAMES = ".agentkernel.internal"
"""How such names end. None of them is meant by a rule for every name, or for all names below one:
such a rule never means this machine."""


class Rule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One line of a policy.

    `host`: an exact name ("api.example.org"), all names below one ("*.example.org"), every name
    ("*"), an address or a range of addresses in CIDR notation. A range matches what the guest asks
    for by address; what a name resolves to is vetted apart. Empty `ports`, `methods` and `paths`
    match everything; a path that ends in "*" matches what begins so. Methods and paths need the
    request to be seen: such a host's TLS is intercepted.
    `private`: may be an address that is not public. The machine's loopback needs ports besides.
    `tls`: "splice" never intercepts, so that pinned clients work; it can't stand with methods,
    paths or a secret's host.
    `source`: where the rule comes from, in words for people.
    """

    action: Action = "allow"
    host: Annotated[str, Meta(min_length=1, max_length=253)]
    ports: tuple[Port, ...] = ()
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    private: bool = False
    tls: Tls = "auto"
    source: str = ""


class Caps(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Bounds of one sandbox's traffic. None: none. Bytes are counted over its whole life, rates in
    bytes a second; `names`: how many different names it may ever ask for."""

    connections: Annotated[int, Meta(ge=1, le=65536)] = 256
    connections_per_second: Annotated[int, Meta(ge=1, le=65536)] = 200
    names: Annotated[int, Meta(ge=1, le=65536)] = 8192
    upload_bytes: Annotated[int, Meta(ge=0)] | None = None
    download_bytes: Annotated[int, Meta(ge=0)] | None = None
    upload_rate: Annotated[int, Meta(ge=1)] | None = None
    download_rate: Annotated[int, Meta(ge=1)] | None = None


class Policy(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    cache_hash=True,  # judgements look up what was made of it, for every connection
):
    """Ordered rules, and bounds."""

    rules: tuple[Rule, ...] = ()
    caps: Caps = Caps()


class SecretBinding(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A secret that a sandbox may use without knowing it.

    `reference` is "owner/NAME" in the store of secrets; `env` the variable that holds `placeholder`
    inside. It is swapped on its way to one of `hosts` (names as in a rule, port 443 unless ":PORT"
    is said), over verified TLS, in one of `headers`; elsewhere in the request only if asked for.
    `git`: git inside is told to send it to these hosts.
    """

    reference: str
    env: str
    placeholder: str
    hosts: tuple[str, ...]
    headers: tuple[str, ...] = ("authorization",)
    query: bool = False
    body: bool = False
    git: bool = False


class NetworkSetting(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """All that the gateway has to know of one sandbox. A phase that is not there has no network."""

    phase: str = FIRST_PHASE
    phases: dict[str, Policy] = {}
    secrets: tuple[SecretBinding, ...] = ()

    @property
    def policy(self) -> Policy:
        return self.phases.get(self.phase, Policy())


class Operator(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What the user's own configuration says for all sandboxes.

    `hosts`: addresses of names, taken as they are, private ones too. `floor`: what no sandbox gets
    beyond, whatever its own policy says. `resolver`: "ADDRESS:PORT" of a name server to ask instead
    of the system's. `upstream_ca`: a PEM file trusted besides the system's. `upstream_proxy`:
    "auto" for the environment's, "none", or an http:// address. `patterns`: regular expressions
    that no request may contain.
    """

    hosts: dict[str, str] = {}
    floor: Policy | None = None
    resolver: str | None = None
    upstream_ca: str | None = None
    upstream_proxy: str = "auto"
    patterns: tuple[str, ...] = ()


class NetworkSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox with a gateway has inside: files that tell clients where to ask, variables,
    and the certificate of the authority that intercepted hosts are signed by."""

    files: dict[str, str] = {}
    environment: dict[str, str] = {}
    authority: str = ""
