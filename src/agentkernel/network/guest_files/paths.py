"""Where a networked sandbox finds what was put there for it, and whom it talks to."""

from __future__ import annotations

DIRECTORY = "/etc/agentkernel"
AUTHORITY = f"{DIRECTORY}/ca.crt"
"""The certificate of the authority that intercepted hosts are signed by, alone."""
BUNDLE = f"{DIRECTORY}/ca-bundle.crt"
"""The authorities that the image trusts, and ours: what variables point to."""
PAGE = f"{DIRECTORY}/network.md"
"""What agents are told of their network."""

GATEWAY = "198.18.0.1"
"""The gateway's own address inside; any port 53 is answered by it, so it serves names too."""
HTTP_PROXY = f"http://{GATEWAY}:3128"
GUEST_ADDRESS = "10.0.2.15"
