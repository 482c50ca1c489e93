"""What looks like a secret is not shown, what does not is, and none of it takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkernel.audit import redact

# Put together here, so that no file holds what looks like a real one.
VALUE = "hunter2-" + "x1y2z3"
TOKENS = [
    "sk-" + "proj-" + "a1B2" * 8,
    "gh" + "p_" + "a1B2" * 9,
    "github_" + "pat_" + "a1B2" * 10,
    "AK" + "IA" + "ABCDEFGH12345678",
    "xox" + "b-123456789012-" + "a1B2" * 4,
    "glpat" + "-" + "a1B2" * 5,
    "hf" + "_" + "a1B2" * 8,
    "sk" + "_live_" + "a1B2" * 6,
    "AI" + "za" + "a1B2" * 9,
    "np" + "m_" + "a1B2" * 9,
    "py" + "pi-" + "a1B2" * 9,
    "do" + "p_v1_" + "a1B2" * 9,
    "S" + "G." + "a1B2" * 5 + "." + "a1B2" * 9,
    "ey" + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + "a1B2" * 6,
    "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE" + "a1B2" * 8 + "\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token[:6])
def test_known_shapes(token: str) -> None:
    for text in (token, f"run with {token} please", f"X={token}", f'{{"a": "{token}"}}'):
        shown = redact.text(text)
        assert token not in shown
        assert "a1B2a1B2" not in shown
        assert redact.MARK in shown


@pytest.mark.parametrize(
    "text",
    [
        f"--password={VALUE}",
        f"PGPASSWORD={VALUE} psql",
        f"mysql --password {VALUE} -e q",
        f"curl -H 'Authorization: Bearer {VALUE}' h",
        f"Authorization: Basic {VALUE}",
        f"authorization:{VALUE}",
        f'{{"api_key": "{VALUE}"}}',
        f'{{\\"token\\": \\"{VALUE}\\"}}',
        f"https://h/?access_token={VALUE}&x=1",
        "https" + f"://user:{VALUE}@h/p",
        "https" + f"://{VALUE}@h/p",
        "https" + f"://user:a@{VALUE}@h/p",
        f"curl -u me:{VALUE} h",
        f"AWS_SECRET_ACCESS_KEY='{VALUE}'",
        f'password="a b {VALUE}" more',
        f'password="unfinished {VALUE}',
        f"client_secret: {VALUE}",
        f"Cookie: session={VALUE}",
    ],
)
def test_named_values(text: str) -> None:
    shown = redact.text(text)
    assert VALUE not in shown
    assert redact.MARK in shown


@pytest.mark.parametrize("option", ["--password", "--api-key", "-token", "--client-secret"])
def test_the_word_after_an_option(option: str) -> None:
    assert redact.words(["tool", option, VALUE, "x"]) == ["tool", option, redact.MARK, "x"]
    assert redact.words(["tool", option, "--other"]) == ["tool", option, "--other"]


def test_user_and_password_for_curl() -> None:
    assert redact.words(["curl", "-u", f"me:{VALUE}"]) == ["curl", "-u", f"me:{redact.MARK}"]


@pytest.mark.parametrize(
    "text",
    [
        "python3 -c print(6*7)",
        "git clone https://example.org/a/b.git",
        "pytest -q tests/unit/test_keys.py",
        "ls -la /home/user/.ssh",
        "echo skip-this-step",
        "docker run -u 1000 image",
        "/root/notes about passwords.txt",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert redact.text(text) == text


def test_bounds() -> None:
    assert len(redact.text("a" * 100_000)) == redact.MAX_WORD + 1
    shown = redact.words(["a" * 5000] * 1000)
    assert sum(map(len, shown)) <= redact.MAX_TOTAL + len(redact.CUT)
    assert len(redact.words(["a"] * 1000)) == redact.MAX_WORDS + 1
    assert redact.words(["a"] * 1000)[-1] == redact.CUT


@given(st.integers(0, 200), st.sampled_from(TOKENS[:-1]))
def test_a_secret_at_the_end_of_the_window(shift: int, token: str) -> None:
    """Shrinking what came before does not bring half a secret into view."""
    first = "token=" + "q" * (redact._WINDOW - 120 - shift) + " "
    assert token[:12] not in redact.text(first + token + " tail")


HOSTILE = [
    "a", "://", "-", "--", "password", "token=", 'token="\\', "eyJ", "eyJaaaaaaaa.", "sk-",
    "Bearer ", "-u a", "--pass", "-----BEGIN A" + " PRIVATE KEY-----", "-----BEGIN A", "SG.",
    "auth ", "key:", "'", '"',
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_input_takes_long(piece: str) -> None:
    """The pattern alone on a whole window, in time of this thread's own."""
    text = (piece * redact._WINDOW)[: redact._WINDOW]
    began = time.thread_time()
    redact._SECRETS.sub("", text)
    once = time.thread_time() - began
    # About 2 ms. One that goes back and forth would need minutes for these 3,072 characters.
    assert once < 1.0
    assert len(redact.words([text * 10] * 1000)) <= redact.MAX_WORDS + 1


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.from_regex(redact._SECRETS))
def test_nothing_gets_past_the_first_look(text: str) -> None:
    assert redact._suspicious(text)


@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    shown = redact.text(text)
    assert len(shown) <= redact.MAX_WORD + 1 or redact.MARK in shown
    assert not re.search(r"(?i)\bpassword=[a-z0-9]{4,}", shown)


def test_what_somebody_said_is_left_out_while_it_is_asked_for() -> None:
    said = "fix it: my PIN is 4711"
    argv = ["agent", "-p", said, f"--message={said}", "run"]
    with redact.without(said):
        assert redact.words(argv) == ["agent", "-p", redact.MARK, redact.MARK, "run"]
    assert redact.words(argv) == argv
    with redact.without("run"):
        assert redact.words(["run", "runner"]) == [redact.MARK, "runner"]
    for nothing in (None, ""):
        with redact.without(nothing):
            assert redact.words(["", "a"]) == ["", "a"]
