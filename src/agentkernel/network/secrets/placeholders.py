"""What a sandbox sees instead of a secret: text of the same length, and nothing of the value.

The vendor's prefix stays, since clients look at it before they send anything. Beyond it no position
has the value's character and no four characters in a row occur anywhere in the value, so that a
placeholder tells of the value its length and its kind, no more.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Collection
from typing import Final

from agentkernel.errors import InvalidInputError

MIN_VALUE_BYTES: Final = 16
MAX_VALUE_BYTES: Final = 4096
# Fewer random characters than this could stand in other text by chance.
_LEAST_RANDOM: Final = 12
_SHARED: Final = 4

PREFIXES: Final = tuple(
    sorted(
        (
            "sk-ant-api03-", "sk-ant-admin01-", "sk-ant-oat01-", "sk-ant-",
            "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-", "sk-",
            "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
            "glpat-", "gldt-", "glrt-", "ATBB",
            "npm_", "pypi-", "dckr_pat_", "dckr_oat_", "rubygems_", "cio",
            "AIza", "ya29.", "AKIA", "ASIA",
            "xoxb-", "xoxp-", "xapp-", "xoxe-",
            "hf_", "gsk_", "xai-", "pplx-", "r8_", "nvapi-", "fw_", "tgp_v1_",
            "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_",
            "SG.", "lin_api_", "ntn_", "secret_", "figd_", "shpat_", "dop_v1_", "hvs.", "e2b_",
        ),
        key=len,
        reverse=True,
    )
)  # fmt: skip
"""How vendors begin their tokens, longest first."""

_ALPHABETS: Final = (
    string.digits,
    string.digits + "abcdef",
    string.digits + "ABCDEF",
    string.ascii_lowercase + string.digits,
    string.ascii_uppercase + string.digits,
    string.ascii_letters + string.digits,
)
_WIDEST: Final = _ALPHABETS[-1]


def check_value(value: str | bytes) -> bytes:
    """The value as it is kept. Raises InvalidInputError, whose words hold nothing of it."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if len(data) < MIN_VALUE_BYTES:
        raise InvalidInputError(
            f"a secret has at least {MIN_VALUE_BYTES} characters; this one has {len(data)}",
            hint="with fewer it would be found by chance in text that has nothing to do with it",
        )
    if len(data) > MAX_VALUE_BYTES:
        raise InvalidInputError(f"a secret has at most {MAX_VALUE_BYTES} characters")
    if not all(0x20 <= byte < 0x7F for byte in data) or data.strip() != data:
        raise InvalidInputError(
            "a secret is one line of printable ASCII, without a space at either end",
            hint="it is sent in HTTP headers, which can't carry anything else; "
            "encode it, in base64 for instance, if the other side takes that",
        )
    return data


def make_placeholder(value: str | bytes) -> str:
    """Another one each time. Raises InvalidInputError for what can't be a secret."""
    text = check_value(value).decode("ascii")
    prefix = next((known for known in PREFIXES if text.startswith(known)), "")
    if len(text) - len(prefix) < _LEAST_RANDOM:
        prefix = ""
    rest = text[len(prefix) :]
    runs = {text[at : at + _SHARED] for at in range(len(text) - _SHARED + 1)}
    shape = next((each for each in _ALPHABETS if set(rest) <= set(each)), _WIDEST)
    made = ""
    for theirs in rest:
        made += secrets.choice(_others(shape, theirs, made, runs) or _others(_WIDEST, theirs))
    return prefix + made


def _others(alphabet: str, theirs: str, made: str = "", runs: Collection[str] = ()) -> list[str]:
    """Characters that are not the value's, and do not complete a run of it."""
    last = made[1 - _SHARED :]
    return [own for own in alphabet if own != theirs and last + own not in runs]
