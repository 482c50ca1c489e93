"""The desktop's keyring, where there is one: the extra `keyring`, and a service that answers.

What must hold: nothing waits for it longer than ANSWER_SECONDS. A locked keyring asks its user on
some screen, and a daemon may have none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeVar

from agentkernel.errors import StateError

SERVICE: Final = "agentkernel"
ANSWER_SECONDS: Final = 10.0
# Backends of the package that keep things in the system's own store. Others of it keep them in a
# plain file, or nowhere.
_REAL: Final = ("SecretService", "libsecret", "kwallet", "macOS", "Windows")

T = TypeVar("T")


class Keyring:
    """Values by account. Every call may block for ANSWER_SECONDS; raises StateError."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def get(self, account: str) -> str | None:
        found: str | None = _within(lambda: self._backend.get_password(SERVICE, account))
        return found

    def set(self, account: str, value: str) -> None:
        _within(lambda: self._backend.set_password(SERVICE, account, value))

    def remove(self, account: str) -> None:
        """Also if it is not there."""
        if self.get(account) is not None:
            _within(lambda: self._backend.delete_password(SERVICE, account))


def find_keyring() -> Keyring | None:
    """None: there is none that can be used."""
    try:
        keyring = import_module("keyring")
    except ImportError:
        return None

    def usable() -> Any:
        backend: Any = keyring.get_keyring()
        backends = [backend, *getattr(backend, "backends", ())]
        real = [
            each
            for each in backends
            if type(each).__module__.rpartition(".")[2] in _REAL and each.priority > 0
        ]
        if real:
            real[0].get_password(SERVICE, "")  # it answers, and is not locked
        return real[0] if real else None

    try:
        backend = _within(usable)
    except StateError:
        return None
    return Keyring(backend) if backend is not None else None


def _within(call: Callable[[], T]) -> T:
    """In a thread of its own that ends with the process, since a call can't be stopped."""
    answers: list[T] = []
    failures: list[str] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            # Its kind only: a backend's words may hold anything.
            failures.append(type(error).__name__)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if answers:
        return answers[0]
    why = failures[0] if failures else f"no answer within {ANSWER_SECONDS:.0f} s"
    raise StateError(
        f"the desktop's keyring does not work: {why}",
        hint="unlock it and try again; a daemon that was started outside your session can't see "
        "it: `agentkernel daemon restart` from a terminal of your session",
    )
