"""Endpoints that give out OAuth tokens for refresh tokens, as three providers have them."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

from .replies import Reply, as_json

HOSTS = {
    "platform.claude.com": "anthropic",
    "console.anthropic.com": "anthropic",
    "auth.openai.com": "openai",
    "oauth2.googleapis.com": "google",
}


@dataclass
class Tokens:
    """Refresh tokens that hold, and what is given out for them. Change the fields at will.

    `rotate`: each refresh token can be used once, and brings the next. `lifetime`: seconds.
    `error`: an answer for everybody, as (status, OAuth's word for it). `claims`: of the tokens that
    are JWTs. `asked`: every request so far, its fields beside "host", "path" and "content-type".
    """

    lifetime: int = 3600
    rotate: bool = True
    error: tuple[int, str] | None = None
    claims: dict[str, Any] = field(default_factory=dict)
    refreshable: set[str] = field(default_factory=set)
    access: list[str] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def issue(self, kind: str = "anthropic") -> dict[str, Any]:
        """A first pair of tokens, as if somebody had logged in: the endpoint's own answer."""
        with self._lock:
            return self._give(kind, None)

    def answer(self, host: str, path: str, content_type: str, body: bytes) -> Reply:
        try:
            fields = _fields(content_type, body)
        except ValueError:
            return as_json({"error": "invalid_request"}, 400)
        with self._lock:
            self.asked.append({**fields, "host": host, "path": path, "content-type": content_type})
            if self.error is not None:
                return as_json({"error": self.error[1]}, self.error[0])
            if fields.get("grant_type") != "refresh_token":
                return as_json({"error": "unsupported_grant_type"}, 400)
            used = fields.get("refresh_token", "")
            if used not in self.refreshable:
                words = {"error": "invalid_grant", "error_description": "refresh token not known"}
                return as_json(words, 400)
            if self.rotate:
                self.refreshable.discard(used)
            return as_json(self._give(HOSTS.get(host, _kind_by_path(path)), used))

    def _give(self, kind: str, used: str | None) -> dict[str, Any]:
        given: dict[str, Any]
        number = len(self.access) + 1
        refresh = used if used and not self.rotate else f"refresh-{kind}-{number:04}"
        self.refreshable.add(refresh)
        if kind == "openai":
            access = self._jwt(number)
            given = {
                "id_token": self._jwt(number),
                "access_token": access,
                "refresh_token": refresh,
            }
        elif kind == "google":
            access = f"ya29.scripted-{number:04}"
            given = {"access_token": access, "token_type": "Bearer", "expires_in": self.lifetime}
            given |= {"scope": "openid", "id_token": self._jwt(number)}
            if used is None or self.rotate:
                given["refresh_token"] = refresh
        else:
            access = f"sk-ant-oat01-scripted-{number:04}"
            given = {"access_token": access, "refresh_token": refresh, "token_type": "Bearer"}
            given |= {"expires_in": self.lifetime, "scope": "user:inference user:profile"}
        self.access.append(access)
        return given

    def _jwt(self, number: int) -> str:
        """A JWT that nobody signed: who reads only its claims can't tell."""
        now = int(time.time())
        claims = {"exp": now + self.lifetime, "iat": now, "jti": f"{number:04}", **self.claims}
        parts = [{"alg": "RS256", "typ": "JWT"}, claims]
        texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
        return ".".join([*(text.rstrip("=") for text in texts), "c2lnbmF0dXJl"])


def _kind_by_path(path: str) -> str:
    return {"/oauth/token": "openai", "/token": "google"}.get(path, "anthropic")


def _fields(content_type: str, body: bytes) -> dict[str, str]:
    """Raises ValueError."""
    if "json" in content_type:
        found = json.loads(body)
        if not isinstance(found, dict):
            raise ValueError("no object")
        return {str(key): str(value) for key, value in found.items()}
    return dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True))
