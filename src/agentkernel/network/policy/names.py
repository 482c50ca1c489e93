"""Names and addresses in the one form that everything else compares.

A name that two programs read differently is a way past a rule, so there is no second form: what is
not plainly a name is refused, and what could be read as an address by anything is not a name.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

from agentkernel.errors import InvalidInputError

Address = IPv4Address | IPv6Address

_LONGEST = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
# inet_aton takes 2130706433, 0177.1, 0x7f.0.0.1 and 127.1; URL parsers go by the last label too.
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")
# The two versions of IDNA disagree on these, so that one spelling would be two names.
_AMBIGUOUS = frozenset("\u00df\u03c2\u200c\u200d\u1e9e")


def canonical_name(text: str) -> str:
    """Lower case, without the one dot that may end it. For names from anywhere: ASCII only.

    Raises InvalidInputError.
    """
    name = text.lower() if text.isascii() else text
    name = name.removesuffix(".")
    if not 1 <= len(name) <= _LONGEST:
        raise _wrong(text, f"it has {len(name)} characters; 1 to {_LONGEST} are possible")
    labels = name.split(".")
    for label in labels:
        if not _LABEL.match(label):
            raise _wrong(
                text,
                "between its dots are 1 to 63 letters, digits, - and _, and no - at either end",
            )
    if _NUMBER.match(labels[-1]):
        raise _wrong(text, "it ends in a number, so programs read it as an address")
    return name


def written_name(text: str) -> str:
    """As above, for names that people write: their letters become those of the DNS (IDNA)."""
    if text.isascii():
        return canonical_name(text)
    if _AMBIGUOUS & set(text):
        raise _wrong(text, "programs disagree on how to spell it in ASCII; write its xn-- form")
    try:
        return canonical_name(text.encode("idna").decode("ascii"))
    except UnicodeError:
        raise _wrong(text, "it can't be spelled in ASCII (IDNA)") from None


def is_name(text: str) -> bool:
    """Whether `text` is a name, in canonical form."""
    try:
        return canonical_name(text) == text
    except InvalidInputError:
        return False


def parse_address(text: str) -> Address:
    """Four decimal numbers without leading zeros, or IPv6 without a zone and without brackets.

    Raises InvalidInputError.
    """
    try:
        if "%" in text:
            raise ValueError
        return ip_address(text)
    except ValueError:
        raise InvalidInputError(
            f"{_shown(text)} is not an address",
            hint="write 192.0.2.7 or 2001:db8::7, with no zone and no leading zeros",
        ) from None


def canonical_host(text: str) -> str:
    """A name or an address as a guest says it (IPv6 with or without brackets), in the form that
    judgements take. Raises InvalidInputError."""
    if ":" in text or text.startswith("["):
        inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        address = parse_address(inner)
        if address.version != 6:
            raise _wrong(text, "brackets are for IPv6")
        return str(address)
    try:
        return str(IPv4Address(text))
    except ValueError:
        return canonical_name(text)


def _wrong(text: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"{_shown(text)} is not a name: {why}")


def _shown(text: str) -> str:
    """Whatever a guest sends ends up in messages: short, and with nothing that acts on a screen."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
