"""What agents ask of their providers about an account, once they are logged in."""

from __future__ import annotations

from .replies import Reply, as_json

HOSTS = ("www.googleapis.com",)
ACCOUNT = "account-scripted"
EMAIL = "me@example.org"


def about_account(host: str, path: str) -> Reply | None:
    """None: it is nothing of that kind."""
    if host == "oauth2.googleapis.com" and path == "/tokeninfo":
        return as_json({"aud": "scripted", "scope": "openid", "expires_in": 3600, "email": EMAIL})
    if host == "www.googleapis.com" and path.endswith("/userinfo"):
        return as_json({"id": "1", "email": EMAIL})
    if host == "chatgpt.com" and path.endswith("/wham/accounts/check"):
        free = {"workspace_backend_origin": "NO_CONSTRAINT"}
        free |= {"account_routing_override": "NO_CONSTRAINT"}
        account = {"id": ACCOUNT, "name": "Scripted", "structure": "personal", **free}
        return as_json({"accounts": [account], "default_account_id": ACCOUNT})
    return None
