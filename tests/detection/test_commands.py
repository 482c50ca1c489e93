"""The program that counts, whatever stands before it."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.detection import quick, tables
from agentkernel.detection.commands import understood
from agentkernel.detection.files import GivenFiles

SCRIPTS = GivenFiles(
    {
        "run": b"#!/usr/bin/env python3\n",
        "tool": b"#!/usr/bin/ruby -w\n",
        "start": b"#!/usr/bin/env -S deno run\n",
        "odd": b"#!/home/me/bin/thing\n",
        "x.sh": b"#!/bin/bash\n",
        "binary": b"\x7fELF" + bytes(100),
        "deep/a.py": b"import os\n",
        "gradlew": b"#!/bin/sh\n",
    }
)


@pytest.mark.parametrize(
    ("command", "program", "runtime"),
    [
        ("python3 x.py", "python3", "python"),
        ("/usr/bin/python3 x.py", "python3", "python"),
        ("python3.12 -m http.server", "python3.12", "python"),
        ("env A=b B=c python3", "python3", "python"),
        ("/usr/bin/env -u HOME -i A=b node x.js", "node", "node"),
        ("timeout -k 5 10 go test ./...", "go", "go"),
        ("nice -n 5 nohup cargo build", "cargo", "rust"),
        ("sudo -u me env A=1 timeout 3 ruby x", "ruby", "ruby"),
        ("npx -y tsx index.ts", "npx", "tsx"),
        ("npx tsx@4 index.ts", "npx", "tsx"),
        ("npx eslint .", "npx", "node"),
        ("node --import tsx index.ts", "node", "tsx"),
        ("node index.ts", "node", "tsx"),
        ("deno run main.ts", "deno", "deno"),
        ("bunx vite", "bunx", "bun"),
        ("mvn package", "mvn", "java"),
        ("./gradlew build", "gradlew", "java"),
        ("kotlinc x.kt", "kotlinc", "kotlin"),
        ("bundle exec rake", "bundle", "ruby"),
        ("composer install", "composer", "php"),
        ("gcc-12 x.c", "gcc-12", "c"),
        ("cmake -B build", "cmake", "c"),
        ("dotnet run", "dotnet", "dotnet"),
        ("mix test", "mix", "elixir"),
        ("lua5.4 x.lua", "lua5.4", "lua"),
        ("tofu plan", "tofu", "tofu"),
        ("terraform plan", "terraform", "terraform"),
        ("./run", "run", "python"),
        ("./tool", "tool", "ruby"),
        ("./start", "start", "deno"),
        ("./x.sh", "x.sh", "shell"),
        ("./deep/a.py", "a.py", "python"),
        ("./none.rb", "none.rb", "ruby"),
        ("./odd", "odd", None),
        ("./binary", "binary", None),
        ("ls -l", "ls", None),
    ],
)
def test_programs(command: str, program: str, runtime: str | None) -> None:
    found = understood(command.split(), SCRIPTS)
    assert (found.program, found.runtime, found.neutral) == (program, runtime, False)


@pytest.mark.parametrize(
    ("text", "program", "runtime", "neutral"),
    [
        ("npm test", "npm", "node", False),
        ("cd src && FOO=1 BAR=2 npm test | tee log", "npm", "node", False),
        ("set -eu; export A=1; python3 x.py", "python3", "python", False),
        ("python3 -c 'print(1); import os' && ls", "python3", "python", False),
        ("(cd a; go test)", "go", "go", False),
        ("ls; python3 x", "sh", "shell", True),
        ("echo 'unbalanced", "sh", "shell", True),
        ("", "sh", "shell", True),
        ("sh -c 'bash -c \"ruby x\"'", "ruby", "ruby", False),
    ],
)
def test_shells(text: str, program: str, runtime: str, neutral: bool) -> None:
    for words in (["sh", "-c", text], ["env", "X=1", "/bin/sh", "-eu", "-c", text]):
        found = understood(words, SCRIPTS)
        assert (found.program, found.runtime, found.neutral) == (program, runtime, neutral)


@pytest.mark.parametrize("command", ["bash", "sh script", "make -j4 test", "bash -l"])
def test_programs_that_tell_nothing(command: str) -> None:
    assert understood(command.split(), SCRIPTS).neutral


def test_versions_in_names() -> None:
    named = understood(["python3.12"], SCRIPTS)
    assert named.wish is not None and named.wish.text == "3.12"
    assert understood(["python3"], SCRIPTS).wish is None


def test_the_quick_list_is_the_whole_list() -> None:
    known = tables.PROGRAMS.keys() | tables.NEUTRAL.keys() | tables.WRAPPERS.keys()
    assert known == quick.PROGRAMS
    for program in tables.PROGRAMS.values():
        assert program.runtime in tables.RUNTIMES


WORDS = st.sampled_from([*quick.PROGRAMS, "-c", "--", "-", "A=b", "cd x && npm test", "./run", "…"])


@given(st.lists(st.text(max_size=20) | WORDS, max_size=12))
def test_any_words(words: list[str]) -> None:
    found = understood(words, SCRIPTS)
    assert found.runtime is None or found.runtime in tables.RUNTIMES


def test_nesting_ends() -> None:
    assert understood(["env"] * 5 + ["python3"], SCRIPTS).runtime == "python"
    assert understood(["env"] * 60 + ["python3"], SCRIPTS).runtime is None
    text = "ruby x"
    for _ in range(9):  # each quoting doubles the backslashes of the one before
        text = f"sh -c {shlex.quote(text)}"
    assert understood(["sh", "-c", text], SCRIPTS).runtime == "shell"
