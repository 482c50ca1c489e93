"""`agentkernel detect`: what a command in a project wants, and what `run` would make of it."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from agentkernel.cli.images_auto import chosen_image
from agentkernel.cli.values import printable
from agentkernel.client._sync.transport import Transport
from agentkernel.config.finding import project_top
from agentkernel.detection.choosing import Choice
from agentkernel.detection.detecting import Detection, detect
from agentkernel.errors import InvalidInputError, NotFoundError

NOTHING = 1


def main(options: argparse.Namespace) -> int:
    directory, words = _split(options)
    if not os.path.isdir(directory):
        raise InvalidInputError(f"{directory} is no directory")
    here = os.path.realpath(directory)
    found = detect(words, here, top=project_top(here))
    if found is None:
        print(json.dumps({"detected": None}) if options.json else "nothing here tells a runtime")
        return NOTHING
    choice, missing = _choice(options, words, here)
    if options.json:
        body: dict[str, Any] = {"detected": found.to_dict()}
        body["choice"] = None if choice is None else {"image": choice.image, "why": choice.reason}
        if missing is not None:
            body["missing"] = missing.to_dict()
        print(json.dumps(body))
        return 0
    for name, value in _lines(found, choice, missing):
        print(f"{name:<9}{printable(value)}")
    return 0


def _split(options: argparse.Namespace) -> tuple[str, list[str]]:
    """`[DIR] [-- CMD]`; our own option may stand before the `--`, too."""
    before: list[str] = options.argv
    words: list[str] = []
    if "--" in before:
        at = before.index("--")
        before, words = before[:at], before[at + 1 :]
    if "--json" in before:
        options.json = True
        before = [word for word in before if word != "--json"]
    if len(before) > 1:
        raise InvalidInputError(
            "there is more than one directory", hint="agentkernel detect [DIR] [-- CMD]"
        )
    return (before[0] if before else "."), words


def _choice(
    options: argparse.Namespace, words: list[str], directory: str
) -> tuple[Choice | None, NotFoundError | None]:
    options.toolchains = None
    try:
        return chosen_image(options, words, directory, Transport()), None
    except NotFoundError as error:
        return None, error


def _lines(
    found: Detection, choice: Choice | None, missing: NotFoundError | None
) -> list[tuple[str, str]]:
    lines = [("runtime", found.label)]
    if found.wish is not None:
        lines.append(("version", f"{found.wish.text} ({found.source})"))
    lines.append(("image", found.image or "no official one"))
    lines.append(("tools", ", ".join(group[0] for group in found.needs)))
    lines.append(("why", found.why))
    if choice is not None:
        lines.append(("run uses", f"{choice.image}: {choice.reason}"))
    elif missing is not None:
        lines.append(("run says", missing.message))
    return lines
