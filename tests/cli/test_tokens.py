"""`agentkernel token`: a secret that is shown once, a list without it, an end."""

from __future__ import annotations

import re

from .conftest import Cli, Json

FORM = re.compile(r"ak_[a-z0-9]{20}_[0-9a-f]{64}\n")


def test_a_token_is_printed_alone_on_stdout(cli: Cli, ask: Json) -> None:
    done = cli("token", "create", "plain", "--expires", "30d")
    assert done.returncode == 0 and FORM.fullmatch(done.stdout.decode())
    assert b"only time" in done.stderr
    (shown,) = [entry for entry in ask("token", "list")["tokens"] if entry["name"] == "plain"]
    assert shown["scopes"] == ["read", "exec", "manage"] and shown["owner"] == "token:plain"
    assert abs(shown["expires_at"] - shown["created_at"] - 30 * 86400) < 1
    assert done.stdout.decode().strip().rpartition("_")[2] not in str(shown)
    table = cli("token", "list").stdout.decode()
    assert "plain" in table and "token:plain" in table and "valid" in table
    assert cli("token", "revoke", "plain").returncode == 0
    assert "plain" not in cli("token", "list").stdout.decode()
    assert "revoked" in cli("token", "list", "--all").stdout.decode()


def test_what_reaches_far_is_warned_about(cli: Cli) -> None:
    done = cli("token", "create", "me", "--owner", "local", "--scope", "host-paths", "--scope",
               "admin", "--scope", "read")  # fmt: skip
    words = done.stderr.decode()
    assert "acts as you" in words and "host-paths:" in words and "admin:" in words
    done = cli("token", "create", "small")
    assert "acts as you" not in done.stderr.decode()
    assert cli("token", "revoke", "me", "small").returncode == 0


def test_what_goes_wrong_is_said(cli: Cli, ask: Json) -> None:
    assert cli("token", "create", "Upper").returncode == 125
    assert cli("token", "create", "a", "--scope", "everything").returncode == 2
    done = cli("token", "revoke", "nobody")
    assert done.returncode == 125 and b"no valid token nobody" in done.stderr
    made = ask("token", "create", "json")
    assert made["token"].startswith(f"ak_{made['id']}_")
    assert cli("token", "create", "json").returncode == 125
    assert ask("token", "revoke", made["id"])["failed"] == []
