"""Names of images are read as docker reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError
from agentkernel.images.oci.reference import parse_reference

DIGEST = "sha256:" + "0f" * 32


@pytest.mark.parametrize(
    ("text", "complete", "familiar"),
    [
        ("debian", "docker.io/library/debian:latest", "debian:latest"),
        ("debian:12-slim", "docker.io/library/debian:12-slim", "debian:12-slim"),
        ("owner/app", "docker.io/owner/app:latest", "owner/app:latest"),
        ("docker.io/debian:12", "docker.io/library/debian:12", "debian:12"),
        ("ghcr.io/a/b/c:1", "ghcr.io/a/b/c:1", "ghcr.io/a/b/c:1"),
        ("localhost/app", "localhost/app:latest", "localhost/app:latest"),
        ("localhost:5000/app:x", "localhost:5000/app:x", "localhost:5000/app:x"),
        ("[::1]:5000/app", "[::1]:5000/app:latest", "[::1]:5000/app:latest"),
        (f"app@{DIGEST}", f"docker.io/library/app@{DIGEST}", f"app@{DIGEST}"),
        (f"app:1@{DIGEST}", f"docker.io/library/app:1@{DIGEST}", f"app:1@{DIGEST}"),
        ("Host.Example/app", "Host.Example/app:latest", "Host.Example/app:latest"),
    ],
)
def test_what_is_left_out_is_filled_in(text: str, complete: str, familiar: str) -> None:
    reference = parse_reference(text)
    assert str(reference) == complete
    assert reference.familiar == familiar
    assert parse_reference(complete) == reference
    assert parse_reference(familiar) == reference


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "UPPER", "a//b", "a/../b", "../a", "a b", "a\nb", "a:", "a:b:c", "a:-x"),
        *("-a", "a-", "a..b", "a/", "x.y/", "ex ample.com/a", "a@sha256:12", "a@md5:12", "a@"),
        *(f"a@{DIGEST}0", f"a@{DIGEST.upper()}", "é", "a" * 300, "a:" + "t" * 129, "[::1/a"),
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="no name of an image"):
        parse_reference(text)


@given(st.text(max_size=80))
def test_any_text_is_a_name_or_is_refused(text: str) -> None:
    try:
        reference = parse_reference(text)
    except InvalidInputError:
        return
    assert parse_reference(str(reference)) == reference
    assert ".." not in reference.repository and "//" not in str(reference)
