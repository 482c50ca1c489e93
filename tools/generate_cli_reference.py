"""Writes `docs/reference/cli.md` from the command line's own arguments.

    python tools/generate_cli_reference.py [--check]

With --check nothing is written, and the exit status is 1 if something would be.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "cli.md"
HEAD = """\
# Command line

`agentkernel`, or `ak` for short. This page is written by `tools/generate_cli_reference.py` from the
arguments themselves.

- Answers go to stdout, everything else to stderr. With `--json` the answer is one JSON value
  (`sandbox logs`: one a line), and an error is `{"error": {…}}` as in [errors](errors.md).
- The exit status is 0, or the command's own where one is run; 2 for arguments that are wrong, 125
  for any error of ours, with one line on stderr that says why.
- A sandbox is called by its name or its id.
- `exec`, `attach`, `sandbox` and `job` talk to the daemon of the state directory
  (`AGENTKERNEL_STATE_DIR`, see [state](state.md)) and start it when none runs.
- With `AGENTKERNEL_OWNER=mcp:NAME` they see the sandboxes of an [MCP client](../guides/mcp.md), not
  yours.
- `run`, `info`, `mcp` and `sandbox create` read [configuration files](config.md).
"""


def parsers(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command with arguments of its own, in the order of `--help`."""
    groups = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    if not groups or not groups[0].required:
        yield words, parser
    for group in groups:
        for name, inner in group.choices.items():
            yield from parsers(inner, (*words, name))


def usage_of(parser: argparse.ArgumentParser) -> str:
    """One line, the same in every version of Python."""
    words = [parser.prog]
    for action in parser._actions:
        if not _is_shown(action):
            continue
        if action.option_strings:
            words.append(f"[{action.option_strings[-1]}{_value(action)}]")
        elif action.nargs == argparse.REMAINDER:
            words.append(f"{action.metavar} …")
        else:
            name = str(action.metavar)
            many = f"{name} …" if action.nargs == "+" else name
            words.append(f"[{many}]" if action.nargs == "?" else many)
    return " ".join(words)


def _is_shown(action: argparse.Action) -> bool:
    # Verbs have sections of their own.
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    return action.help != argparse.SUPPRESS and not isinstance(action, hidden)


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        name = "|".join(map(str, action.choices))
    else:
        name = str(action.metavar or action.dest.upper())
    return f" [{name}]" if action.nargs == "?" else f" {name}"


def section(words: tuple[str, ...], parser: argparse.ArgumentParser) -> str:
    from agentkernel.cli.manual import epilog_of

    lines = [f"## {' '.join(words)}", "", "```", usage_of(parser), "```", ""]
    if parser.description:
        lines += [parser.description, ""]
    rows = [
        (", ".join(action.option_strings) + _value(action) if action.option_strings
         else str(action.metavar), (action.help or "").replace("|", "\\|"))
        for action in parser._actions
        if _is_shown(action)
    ]  # fmt: skip
    if rows:
        lines += ["| argument | |", "|---|---|"]
        lines += [f"| `{name.replace('|', chr(92) + '|')}` | {text} |" for name, text in rows]
        lines.append("")
    lines += ["```", epilog_of(parser), "```", ""]
    return "\n".join(lines)


def page() -> str:
    sys.path.insert(0, str(ROOT / "src"))
    from agentkernel.cli.main import build_parser

    os.environ["COLUMNS"] = "100"
    sections = [section(words, parser) for words, parser in parsers(build_parser(), ())]
    return "\n".join([HEAD, *sections]).rstrip() + "\n"


def main() -> int:
    text = page()
    same = PAGE.exists() and PAGE.read_text() == text
    if "--check" in sys.argv:
        print("up to date" if same else f"differs: {PAGE}")
        return 0 if same else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
