"""Toolchains outside `/usr`: which directories make the commands on the user's PATH work inside.

For each PATH entry, the smallest directory that makes its commands work: a known layout's
(`layouts.py`), a virtual environment's with its base interpreter, or an installation prefix. They
are shown read-only at their own paths. Never shown: the home itself or anything that holds it,
directories of credentials, project directories. What is left out is said in `notes`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from agentkernel.images.layouts import (
    ALWAYS_HIDDEN,
    CONDA_HIDDEN,
    LAYOUTS,
    NEVER_BELOW,
    PATH_VARIABLES,
    PREFIX_SIGNS,
    SENSITIVE,
    SHARED,
    VERSION_VARIABLES,
    Layout,
)
from agentkernel.images.model import Tree

MAX_ENTRIES = 128
MAX_LISTED = 512
# Directories of the machine where people link to programs elsewhere.
LINK_PLACES = ("/usr/local/bin", "/usr/local/sbin")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
VERSION_CHARACTERS = frozenset(LETTERS + LETTERS.upper() + "0123456789.:+_-")


@dataclass
class Found:
    """`path` are the entries of PATH that exist inside, in the user's order."""

    trees: list[Tree] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def find(
    path_env: str,
    home: str,
    machine_prefixes: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    guest_home: str = "/root",
    machine: str = "",
    toolchains: bool = True,
) -> Found:
    """What of PATH works inside, and what must be shown for it.

    `machine_prefixes` are guest paths that the image shows anyway (`/usr`, `/bin`, …), taken from
    below `machine`. `environment` is the user's, read for the variables that relocate known
    layouts. With `toolchains` false nothing but the prefixes is used.
    """
    finder = _Finder(home, machine_prefixes, environment or {}, machine)
    entries = path_env.split(":")[:MAX_ENTRIES]
    absolute = [os.path.normpath(entry) for entry in entries if entry.startswith("/")]
    for entry in dict.fromkeys(absolute):
        if finder.in_image(entry):
            if os.path.isdir(machine + entry):
                finder.add_path(entry)
                if toolchains and entry in LINK_PLACES:
                    finder.linked_from(entry)
        elif toolchains:
            finder.entry(entry)
    return finder.finish(guest_home)


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


class _Finder:
    def __init__(
        self, home: str, prefixes: Sequence[str], environment: Mapping[str, str], machine: str
    ) -> None:
        home = os.path.normpath(home) if home.startswith("/") else "/nonexistent"
        self.home = home if home != "/" else "/nonexistent"
        self.home_real = os.path.realpath(self.home)
        self.prefixes = tuple(prefixes)
        self.environment = environment
        self.machine = machine
        self.found = Found()
        self.trees: dict[str, Tree] = {}
        self.layouts = [(root, layout) for layout in LAYOUTS for root in self._roots(layout)]
        self.node = False

    def _roots(self, layout: Layout) -> list[str]:
        roots = []
        named = self.environment.get(layout.variable, "") if layout.variable else ""
        if named.startswith("/"):
            named = os.path.normpath(named.split(":", 1)[0])
            # A variable may point anywhere; a root that holds the home is no root.
            if not _within(self.home, named) and named != "/":
                roots.append(named)
        return roots + [os.path.join(self.home, place) for place in layout.places]

    # --- PATH entries

    def in_image(self, path: str) -> bool:
        return any(_within(path, prefix) for prefix in self.prefixes)

    def add_path(self, path: str) -> None:
        if path not in self.found.path:
            self.found.path.append(path)

    def entry(self, entry: str) -> None:
        """Show what PATH entry `entry` needs and put it on the guest's PATH, or note why not."""
        if (
            any(_within(entry, bad) for bad in NEVER_BELOW)
            and not _within(entry, self.home)
            and not entry.startswith(("/run/", "/etc/"))  # may be links to better places
        ):
            self.leave_out(entry, "not a place for toolchains")  # and looking there may be slow
            return
        real = self.real(entry)
        if not os.path.isdir(real):
            return
        if self.in_image(real):
            self.add_path(real)
            return
        shown = self.show(entry, real)
        if shown is None:
            return
        for extra in self._before(shown):
            self.add_path(extra)
        self.add_path(shown)

    def real(self, path: str) -> str:
        """`realpath`, but with the home under the name the user has for it."""
        try:
            real = os.path.realpath(path)
        except ValueError:  # a NUL: nothing has such a name
            return path
        if self.home != self.home_real and _within(real, self.home_real):
            return self.home + real[len(self.home_real) :]
        return real

    def show(self, entry: str, real: str, *, known_only: bool = False) -> str | None:
        """Add the trees that a directory of commands needs; returns its path inside, or None."""
        if _within(real, "/nix/store"):
            self.tree("/nix/store", "Nix packages", trusted=True)
            return real
        for path in dict.fromkeys((entry, real)):
            for root, layout in self.layouts:
                directory = self._part_shown(layout, root, path)
                if directory is not None:
                    return path if self._known(layout, root, directory) else None
        parent = os.path.dirname(real)
        if os.path.isfile(f"{parent}/pyvenv.cfg"):
            return real if self._virtual_environment(parent) else None
        if os.path.isdir(f"{parent}/conda-meta"):
            shown = self.tree(parent, "conda: conda, python", hidden=CONDA_HIDDEN)
            return real if shown else None
        if known_only:
            return None
        return self._unknown(real)

    def _before(self, shown: str) -> list[str]:
        """asdf's shims read the home's `.tool-versions`; what it names goes before them."""
        for root, layout in self.layouts:
            if layout.name != "asdf" or shown != f"{root}/shims":
                continue
            try:
                with open(f"{self.home}/.tool-versions", encoding="utf-8") as file:
                    lines = file.read(16384).splitlines()
            except (OSError, UnicodeDecodeError):
                return []
            words = [line.split("#", 1)[0].split() for line in lines]
            bins = [f"{root}/installs/{word[0]}/{word[1]}/bin" for word in words if len(word) > 1]
            return [path for path in map(os.path.normpath, bins) if self._is_below(path, root)]
        return []

    def _is_below(self, path: str, root: str) -> bool:
        return _within(self.real(path), self.real(root)) and os.path.isdir(path)

    # --- rules

    def _part_shown(self, layout: Layout, root: str, path: str) -> str | None:
        """The directory that `layout` shows for the directory of commands `path`, if it is its."""
        if not _within(path, root):
            return None
        if layout.show == "root":
            return root
        wanted = layout.part.split("/")
        parts = path[len(root) + 1 :].split("/")
        if len(parts) < len(wanted):
            return None
        if any(want not in ("*", part) for want, part in zip(wanted, parts, strict=False)):
            return None
        directory = "/".join([root, *parts[: len(wanted)]])
        if layout.show == "version" and os.path.islink(directory):
            return None  # such as `current`: the real path will match
        return directory

    def _known(self, layout: Layout, root: str, directory: str) -> bool:
        reason = f"{layout.name}: {layout.commands}"
        if not self.tree(directory, reason, hidden=layout.hidden, trusted=True):
            return False
        for name in layout.exported:
            self.found.environment[name] = root
        if layout.note:
            self.note(layout.note)
        if layout.show == "version":
            self.node = self.node or "node" in layout.commands
        if layout.show == "part":
            self.linked_from(directory)
            if layout.name == "cargo" and os.path.lexists(f"{directory}/rustup"):
                self._rustup()
        return True

    def _rustup(self) -> None:
        for root, layout in self.layouts:
            if layout.name == "rustup" and os.path.isdir(root):
                self._known(layout, root, root)
                return

    def linked_from(self, directory: str) -> None:
        """Show what links in a directory of commands lead to: known layouts and parts of /opt."""
        try:
            source = self.machine + directory if self.in_image(directory) else directory
            with os.scandir(source) as entries:
                links = [entry.path for entry in islice(entries, MAX_LISTED) if entry.is_symlink()]
        except OSError:
            return
        seen = {directory}
        for link in links:
            target = os.path.normpath(os.path.join(directory, os.readlink(link)))
            beside = os.path.dirname(target)
            if beside in seen or self.in_image(beside) or not os.path.isdir(beside):
                continue
            seen.add(beside)
            if _within(beside, "/opt") and beside.count("/") > 1:
                prefix = "/".join(beside.split("/")[:3])
                self.tree(prefix, f"linked from {directory}: {os.path.basename(link)}")
            elif self.show(beside, self.real(beside), known_only=True) is None:
                end = os.path.dirname(self.real(target))
                if end not in seen and not self.in_image(end):
                    seen.add(end)
                    self.show(end, end, known_only=True)

    def _virtual_environment(self, prefix: str) -> bool:
        if not self.tree(prefix, "virtual environment: python, pip"):
            return False
        base = ""
        try:
            with open(f"{prefix}/pyvenv.cfg", encoding="utf-8") as file:
                for line in file.read(16384).splitlines():
                    key, _, value = line.partition("=")
                    if key.strip() == "home":
                        base = value.strip()
        except (OSError, UnicodeDecodeError):
            return True
        if base.startswith("/") and not self.in_image(base) and os.path.isdir(base):
            self.show(os.path.normpath(base), self.real(base))
        return True

    def _unknown(self, real: str) -> str | None:
        """A directory that no layout names: its prefix if it looks like one, else itself."""
        if os.path.basename(real) == ".bin" or self._project(real):
            self.leave_out(real, "it belongs to a project")
            return None
        parent = os.path.dirname(real)
        if real == f"{self.home}/bin":
            self.leave_out(real, "personal scripts may hold credentials")
            return None
        wanted = real
        # A dot directory of the home mixes programs with state and tokens: only its `bin`.
        dotted = os.path.dirname(parent) == self.home and os.path.basename(parent)[:1] == "."
        if (
            os.path.basename(real) in ("bin", "sbin", "condabin")
            and parent not in SHARED
            and parent != self.home
            and not dotted
            and any(os.path.isdir(f"{parent}/{sign}") for sign in PREFIX_SIGNS)
        ):
            wanted = parent
        return real if self.tree(wanted, f"on PATH: {self._commands(real)}") else None

    def _commands(self, directory: str) -> str:
        try:
            with os.scandir(directory) as entries:
                names = sorted(entry.name for entry in islice(entries, 64))
        except OSError:
            names = []
        return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")

    def _project(self, path: str) -> bool:
        parent = os.path.dirname(path)
        while parent not in ("/", self.home) and parent not in SHARED:
            if os.path.lexists(f"{parent}/.git"):
                return True
            parent = os.path.dirname(parent)
        return False

    # --- trees

    def tree(
        self, path: str, reason: str, *, hidden: Sequence[str] = (), trusted: bool = False
    ) -> bool:
        """Show `path`, unless it must not be. `trusted` paths come from a layout or from Nix."""
        if path in self.trees:
            return True
        refusal = self._refusal(path, trusted)
        if refusal is not None:
            self.leave_out(path, refusal)
            return False
        covered = [*ALWAYS_HIDDEN, *hidden]
        self.trees[path] = Tree(path, reason, self._existing(path, covered))
        return True

    def _refusal(self, path: str, trusted: bool) -> str | None:
        real = os.path.realpath(path)
        if not os.path.isdir(real):
            return "it is not a directory"
        if real == "/" or _within(self.home_real, real) or _within(self.home, real):
            return "it holds your home directory"
        if _within(real, "/nix/store"):
            return None
        if not _within(real, self.home_real):
            if any(_within(real, bad) for bad in NEVER_BELOW):
                return "not a place for toolchains"
            if real in SHARED:
                return "it is shared by many things"
            if _within(real, "/root") or (_within(real, "/home") and not trusted):
                return "it belongs to another account"
        else:
            inside = real[len(self.home_real) + 1 :].split("/", 1)
            named = trusted and path.startswith(f"{self.home}/{inside[0]}/")
            if inside[0] in SENSITIVE and (not named or len(inside) == 1):
                return f"~/{inside[0]} may hold credentials"
        if any(os.path.lexists(f"{real}/{name}") for name in (".ssh", ".gnupg", ".aws")):
            return "it holds credentials"
        return None

    def _existing(self, root: str, patterns: Sequence[str]) -> tuple[str, ...]:
        """The paths below `root` that exist and must be found empty inside."""
        found: dict[str, None] = {}
        for pattern in patterns:
            paths = [root]
            for part in pattern.split("/"):
                if part == "*":
                    paths = [f"{path}/{name}" for path in paths for name in _names(path)]
                else:
                    paths = [f"{path}/{part}" for path in paths]
            for path in paths:
                if not os.path.lexists(path):
                    continue
                if os.path.islink(path):
                    # Covering a link covers what it leads to, if that is in this tree at all.
                    path = self.real(path)
                    if path == root or not _within(path, root) or not os.path.exists(path):
                        continue
                found[path] = None
        return tuple(
            path
            for path in found
            if not any(path != other and _within(path, other) for other in found)
        )

    # --- results

    def note(self, text: str) -> None:
        if text not in self.found.notes:
            self.found.notes.append(text)

    def leave_out(self, path: str, why: str) -> None:
        self.note(f"{path} on your PATH is not shown: {why}.")

    def finish(self, guest_home: str) -> Found:
        found = self.found
        for tree in sorted(self.trees.values(), key=lambda tree: len(tree.path)):
            for index, outer in enumerate(found.trees):
                if _within(tree.path, outer.path):
                    # Shown already; but what must not be seen of it still must not.
                    hidden = tuple(dict.fromkeys(outer.hidden + tree.hidden))
                    found.trees[index] = Tree(outer.path, outer.reason, hidden)
                    break
            else:
                found.trees.append(tree)
        self._pass_on()
        self._writable_places(guest_home)
        return found

    def _pass_on(self) -> None:
        for name in PATH_VARIABLES:
            value = self.environment.get(name, "")
            if not value.startswith("/") or name in self.found.environment:
                continue
            value = os.path.normpath(value)
            for path in dict.fromkeys((value, self.real(value))):
                if self._visible(path):
                    self.found.environment[name] = path
                    break
        for name in VERSION_VARIABLES:
            value = self.environment.get(name, "")
            if 0 < len(value) <= 64 and VERSION_CHARACTERS.issuperset(value) and self.trees:
                self.found.environment[name] = value

    def _visible(self, path: str) -> bool:
        if self.in_image(path):
            return os.path.isdir(self.machine + path)
        return os.path.isdir(path) and any(_within(path, tree.path) for tree in self.found.trees)

    def _writable_places(self, guest_home: str) -> None:
        """Where installers put programs by default may be a tree, which is read-only."""
        if self.node:
            self.found.environment["NPM_CONFIG_PREFIX"] = f"{guest_home}/.local"
        if guest_home != "/root" or self.home != guest_home:
            return
        shown = {tree.path for tree in self.found.trees}
        if f"{guest_home}/.cargo/bin" in shown:
            self.found.environment["CARGO_INSTALL_ROOT"] = "/usr/local"
        if f"{guest_home}/go/bin" in shown:
            self.found.environment["GOBIN"] = "/usr/local/bin"
        if f"{guest_home}/.local/bin" in shown:
            self.found.environment["PYTHONUSERBASE"] = "/usr/local"
            if self.node:
                self.found.environment["NPM_CONFIG_PREFIX"] = "/usr/local"


def _names(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in islice(entries, MAX_LISTED)]
    except OSError:
        return []
