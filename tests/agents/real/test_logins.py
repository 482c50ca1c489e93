"""Each agent does a task with the login of a subscription that it does not have."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ..scripted import ScriptedModels, by_key
from ..scripted.accounts import ACCOUNT, EMAIL
from ..scripted.tokens import Tokens
from .lab import RIGHT, Lab, make_project, task_script

KIND = {"claude": "anthropic", "codex": "openai", "gemini": "google", "opencode": "openai"}
HOST = {
    "claude": "api.anthropic.com",
    "codex": "chatgpt.com",
    "gemini": "cloudcode-pa.googleapis.com",
    "opencode": "chatgpt.com",
}


def login_file(agent: str, given: dict[str, Any], ends: float) -> dict[str, Any]:
    """What the agent itself would have written."""
    access, refresh, ms = given["access_token"], given["refresh_token"], int(ends * 1000)
    files: dict[str, dict[str, Any]] = {
        "claude": {
            "claudeAiOauth": {
                "accessToken": access, "refreshToken": refresh, "expiresAt": ms,
                "scopes": ["user:inference", "user:profile"], "subscriptionType": "max",
            }
        },
        "codex": {
            "auth_mode": "chatgpt",
            "tokens": {**given, "account_id": ACCOUNT},
            "last_refresh": "2026-01-01T00:00:00Z",
        },
        "gemini": {**given, "expiry_date": ms},
        "opencode": {
            "openai": {
                "type": "oauth", "access": access, "refresh": refresh, "expires": ms,
                "accountId": ACCOUNT,
            }
        },
    }  # fmt: skip
    return files[agent]


@pytest.mark.parametrize("agent", KIND)
def test_an_agent_works_with_a_login_that_is_outside(
    agent: str, lab: Lab, models: ScriptedModels, tmp_path: Path
) -> None:
    """Its access token has ended: a new one is asked for before it starts, and arrives."""
    account = {"chatgpt_account_id": ACCOUNT, "chatgpt_plan_type": "plus"}
    models.tokens = Tokens(claims={"email": EMAIL, "https://api.openai.com/auth": account})
    given = models.tokens.issue(KIND[agent])
    file = tmp_path / "login.json"
    file.write_text(json.dumps(login_file(agent, given, time.time() - 60)))
    taken = lab.cli("agent", "login", agent, "--import", str(file))
    assert taken.returncode == 0, taken.stderr
    renewed = lab.cli("agent", "status", agent, "--refresh", "--json")
    assert renewed.returncode == 0, renewed.stderr
    try:
        project = make_project(tmp_path / "project")
        models.play(task_script(agent))
        model = ("--model", "openai/gpt-5.5") if agent == "opencode" else ()
        done = lab.run(agent, "Mend add", project, "--yes", *model)
        # OpenCode leaves a file in .git, which is held back: that is told by the code, too.
        held = done.summary.get("held_back")
        assert done.code == 0 or held, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert (project / "calc.py").read_text() == RIGHT
    finally:
        gone = lab.cli("agent", "logout", agent)
    assert gone.returncode == 0, gone.stderr
    assert set(by_key(models.work())) == {models.tokens.access[-1]}
    assert {asked.host for asked in models.work()} == {HOST[agent]}
    # Nobody but the daemon asked for a token, once.
    assert len(models.tokens.asked) == 1
    said = done.stdout + done.stderr + json.dumps(done.summary)
    for secret in (*models.tokens.access, *models.tokens.refreshable):
        assert secret not in said
