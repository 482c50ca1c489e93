"""Models that do what a script says, for tests of agents without a network. See README.md."""

from __future__ import annotations

from .conversation import Conversation
from .models import Asked, by_key
from .script import Edit, Read, Run, Say, Script, Turn, Use, Write
from .server import ScriptedModels
from .tokens import Tokens

__all__ = [
    "Asked",
    "Conversation",
    "Edit",
    "Read",
    "Run",
    "Say",
    "Script",
    "ScriptedModels",
    "Tokens",
    "Turn",
    "Use",
    "Write",
    "by_key",
]
