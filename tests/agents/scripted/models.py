"""The models: which request is for which dialect, who may ask, and what the script says next."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import anthropic, gemini, openai
from .accounts import HOSTS as ACCOUNT_HOSTS
from .accounts import about_account
from .conversation import Conversation, choose, example
from .replies import Reply, as_json
from .script import Say, Script
from .tokens import HOSTS as TOKEN_HOSTS
from .tokens import Tokens
from .tools import NoTool, answer, position

GATE_SECONDS = 120.0
HOSTS = (
    "api.anthropic.com",
    "api.openai.com",
    "chatgpt.com",
    "generativelanguage.googleapis.com",
    "cloudcode-pa.googleapis.com",
    *TOKEN_HOSTS,
    *ACCOUNT_HOSTS,
)
"""Names that these servers answer to, beside whatever else they are asked as."""

MODELS = (
    "claude-sonnet-4-5",
    "claude-haiku-4-5",
    "gpt-5",
    "gpt-4o",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
)
_ASIDE = "Scripted work"
"""The answer to what an agent asks beside its work, such as a title for it."""


@dataclass
class Asked:
    """A request as it came. `key`: what it was sent with, without "Bearer". `conversation`: what it
    said, if it was for a model; `aside` if it was none of the script's turns."""

    method: str
    host: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    sni: str | None = None
    status: int = 0
    conversation: Conversation | None = None
    aside: bool = False

    @property
    def key(self) -> str:
        for name in ("x-api-key", "x-goog-api-key", "authorization"):
            if value := self.headers.get(name):
                return value.removeprefix("Bearer ")
        return self.query.get("key", "")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(eq=False)
class Models:
    """`keys`: who else comes is answered 401; empty: everybody may. Tokens that `tokens` gave out
    count as keys. `scripts`: the first that is for a key and a conversation is played. All of it
    may be changed while it runs."""

    scripts: list[Script] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    tokens: Tokens = field(default_factory=Tokens)
    requests: list[Asked] = field(default_factory=list)
    _gates: dict[str, threading.Event] = field(default_factory=dict)
    _changing: threading.Lock = field(default_factory=threading.Lock)
    _count: int = 0

    def play(self, *scripts: Script) -> None:
        """These instead of those before."""
        self.scripts = list(scripts)

    def open(self, gate: str) -> None:
        self._gate(gate).set()

    def _gate(self, name: str) -> threading.Event:
        with self._changing:
            return self._gates.setdefault(name, threading.Event())

    def work(self, *, key: str | None = None) -> list[Asked]:
        """The requests that were turns of a script, of everybody or of one key."""
        return [
            asked
            for asked in list(self.requests)
            if asked.conversation is not None
            and not asked.aside
            and (key is None or asked.key == key)
        ]

    # -- one request ----------------------------------------------------------------------------

    def answer(self, asked: Asked) -> Reply:
        with self._changing:
            self.requests.append(asked)
        try:
            reply = self._answer(asked)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            reply = as_json({"error": {"message": f"not understood: {exc!r}"}}, 400)
        asked.status = reply.status
        return reply

    def _answer(self, asked: Asked) -> Reply:
        path, host = asked.path, asked.host
        if (account := about_account(host, path)) is not None:
            return account
        if asked.method == "POST" and (host in TOKEN_HOSTS or path.endswith("/oauth/token")):
            kind = asked.headers.get("content-type", "")
            return self.tokens.answer(host, path, kind, asked.body)
        last = path.rsplit("/", 1)[-1]
        if asked.method == "POST" and ":" in last:
            return self._gemini(asked, last)
        if asked.method == "POST" and path.endswith("/messages/count_tokens"):
            return as_json({"input_tokens": 100})
        if asked.method == "POST" and path.endswith("/messages"):
            talk = anthropic.read(asked.json())
            return self._play(asked, talk, anthropic.write, anthropic.refuse)
        if asked.method == "POST" and path.endswith("/responses"):
            talk = openai.read_responses(asked.json())
            return self._play(asked, talk, openai.write_responses, openai.refuse)
        if asked.method == "POST" and path.endswith("/chat/completions"):
            talk = openai.read_chat(asked.json())
            return self._play(asked, talk, openai.write_chat, openai.refuse)
        if asked.headers.get("upgrade", "").lower() == "websocket":
            return as_json({"error": {"message": "no WebSockets here"}}, 426)
        if asked.method == "GET" and last == "models":
            return self._models(host)
        return as_json({"error": {"message": f"nothing here for {asked.method} {path}"}}, 404)

    def _gemini(self, asked: Asked, last: str) -> Reply:
        model, _, method = last.partition(":")
        if method == "countTokens":
            return as_json({"totalTokens": 100})
        if method == "loadCodeAssist":
            tier = {"id": "standard-tier", "name": "Standard"}
            return as_json({"currentTier": tier, "cloudaicompanionProject": "scripted"})
        if method not in ("generateContent", "streamGenerateContent"):
            return as_json({})
        body = asked.json()
        wrapped = "request" in body
        talk = gemini.read(body, body.get("model", model), stream=method.startswith("stream"))

        def write(*given: Any) -> Reply:
            return gemini.write(*given, wrapped=wrapped)

        return self._play(asked, talk, write, gemini.refuse)

    def _models(self, host: str) -> Reply:
        if "google" in host:
            methods = ["generateContent", "countTokens"]
            found = [
                {"name": f"models/{name}", "supportedGenerationMethods": methods} for name in MODELS
            ]
            return as_json({"models": found})
        data = [
            {"id": name, "object": "model", "type": "model", "display_name": name, "created": 0}
            for name in MODELS
        ]
        return as_json({"object": "list", "data": data, "has_more": False})

    def _play(self, asked: Asked, talk: Conversation, write: Any, refuse: Any) -> Reply:
        asked.conversation = talk
        if self.keys and asked.key not in self.keys and asked.key not in self.tokens.access:
            asked.aside = True
            reply: Reply = refuse(401, "this key is not known here")
            return reply
        with self._changing:
            self._count += 1
            id = f"{self._count:08}"
        script = choose(self.scripts, talk, asked.key)
        if script is None or not (talk.tools or talk.edits_by_text):
            asked.aside = True
            said = json.dumps(example(talk.schema)) if talk.schema else _ASIDE
            reply = write(said, talk, script or Script([]), id)
            return reply
        turn = script.turn(position(script, talk))
        if turn.gate and not self._gate(turn.gate).wait(GATE_SECONDS):
            turn = Say(f"nobody opened {turn.gate}")
        try:
            done = answer(turn, talk)
        except NoTool as exc:
            done = str(exc)
        reply = write(done, talk, script, id)
        return reply


def parse_target(target: str) -> tuple[str, dict[str, str]]:
    path, _, query = target.partition("?")
    return path, dict(urllib.parse.parse_qsl(query))


def by_key(requests: Iterable[Asked]) -> dict[str, int]:
    """How many requests came with which key."""
    found: dict[str, int] = {}
    for asked in requests:
        found[asked.key] = found.get(asked.key, 0) + 1
    return found
