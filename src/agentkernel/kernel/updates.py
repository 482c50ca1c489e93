"""What somebody may ask to be changed of a sandbox that exists."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

AtEnd = Literal["stop", "remove"]
_Seconds = Annotated[float, Meta(gt=0, le=1e9)]


class SandboxUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A merge: what is left out stays, null takes away. Of `labels` each is one of its own. A time
    to live begins anew, from now."""

    name: str | None | UnsetType = UNSET
    labels: dict[str, str | None] | UnsetType = UNSET
    ttl_seconds: _Seconds | None | UnsetType = UNSET
    idle_seconds: _Seconds | None | UnsetType = UNSET
    on_ttl: AtEnd | UnsetType = UNSET
    on_idle: AtEnd | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not UNSET}
