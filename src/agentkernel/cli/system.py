"""`agentkernel system …`: what everything takes on the disk, and what of it can go."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from agentkernel.cli.notices import Connected
from agentkernel.cli.outcome import OURS, say
from agentkernel.cli.tables import show
from agentkernel.client._sync.host import Host
from agentkernel.errors import InvalidInputError
from agentkernel.quantities import short_size


def main(options: argparse.Namespace) -> int:
    with Connected() as transport:
        host = Host(transport=transport)
        return _df(options, host) if options.verb == "df" else _prune(options, host)


def _df(options: argparse.Namespace, host: Host) -> int:
    found = host.disk_usage()
    if options.json:
        print(json.dumps(found))
        return 0
    rows = [
        (
            part["kind"],
            str(part["count"]),
            short_size(part["bytes"]) if part["complete"] else f"over {short_size(part['bytes'])}",
            short_size(part["reclaimable_bytes"]),
            part["about"],
        )
        for part in found["parts"]
    ]
    show(("WHAT", "COUNT", "SIZE", "CAN GO", "ABOUT"), rows)
    free, reserve = short_size(found["free_bytes"]), short_size(found["reserve_bytes"])
    print(f"{found['path']}: {free} of {short_size(found['total_bytes'])} free")
    if found["short"]:
        say(f"less than {reserve} is free: nothing new is made; `agentkernel system prune`")
    return 0


def _prune(options: argparse.Namespace, host: Host) -> int:
    wanted = {"sandboxes": options.sandboxes, "volumes": options.volumes}
    if not options.yes or options.dry_run:
        plan = host.prune(**wanted, dry_run=True)
        if options.dry_run and options.json:
            print(json.dumps(plan))
            return 0
        if not options.json:
            _show_items(plan["items"])
        if options.dry_run or not plan["items"]:
            _tell(options, plan, "would be" if options.dry_run else "are")
            return 0
        if not _agreed(plan):
            return OURS
    done = host.prune(**wanted, dry_run=False)
    if options.yes and not options.json:
        _show_items(done["items"])
    _tell(options, done, "are")
    return OURS if any(item["problem"] for item in done["items"]) else 0


def _show_items(items: list[dict[str, Any]]) -> None:
    rows = [
        (
            item["kind"],
            item["name"] or item["id"].removeprefix("sha256:")[:40],
            short_size(item["bytes"]),
            item["problem"] or "",
        )
        for item in items
    ]
    if rows:
        show(("WHAT", "NAME", "SIZE", "PROBLEM"), rows)


def _tell(options: argparse.Namespace, pruned: dict[str, Any], verb: str) -> None:
    if options.json:
        print(json.dumps(pruned))
        return
    gone = [item for item in pruned["items"] if item["problem"] is None]
    print(f"{len(gone)} {verb} removed, {short_size(pruned['bytes'])}")


def _agreed(plan: dict[str, Any]) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInputError(
            "nobody is here to be asked", hint="use --yes, or --dry-run to see what would go"
        )
    print(f"remove these, {short_size(plan['bytes'])}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
