"""The parser of every verb: what stands by hand in its `--help` is loaded when it is shown."""

from __future__ import annotations

import argparse
import os

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any


class Parser(argparse.ArgumentParser):
    """Adds the verb's examples, exit status and environment from `manual`, which costs nothing
    until somebody asks.

    `takes_words`: all that stands after "--" is somebody else's words, which are in `words` of the
    options, and ours may stand in any order before it.
    """

    takes_words = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", _Help)
        super().__init__(*arguments, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if not self.takes_words:
            return super().parse_known_args(args, namespace)
        given = list(args or ())
        own = given[: given.index("--")] if "--" in given else given
        self.takes_words = False  # what it is called with below are our own words
        try:
            options, unknown = self.parse_known_intermixed_args(own, namespace)
        finally:
            self.takes_words = True
        options.words = given[len(own) + 1 :]
        return options, unknown

    def format_help(self) -> str:
        from agentkernel.cli.manual import epilog_of, wrapped

        shown = (self.description, self.epilog)
        self.description, self.epilog = wrapped(self.description), epilog_of(self)
        try:
            return super().format_help()
        finally:
            self.description, self.epilog = shown


class _Help(argparse.RawDescriptionHelpFormatter):
    """argparse makes one for each argument that is added, and looks for the width each time."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_width())


def _width() -> int:
    if os.environ.get("COLUMNS", "").isdecimal():
        return int(os.environ["COLUMNS"]) - 2
    try:
        return os.get_terminal_size(1).columns - 2
    except OSError:
        return 78
