"""What single files ask for: a reader for each kind, from its text to wishes.

The text is hostile. So no pattern here can go back and forth over it: files are read line by line,
lines have an end, and repeated parts are of characters that can't be the next part's. A reader that
does not understand a file answers nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from agentkernel.detection.tables import NODE_NAMES, RUNTIMES, TOOL_NAMES
from agentkernel.detection.versions import Wish, at_least, parse_wish
from agentkernel.documents import DocumentError, parse_json, parse_jsonc, parse_toml

MAX_LINE = 500
MAX_LINES = 4000


class Asked(NamedTuple):
    """A runtime that a file asks for; in which version, if it says so."""

    runtime: str
    wish: Wish | None = None
    image: str | None = None


Reader = Callable[[str], list[Asked]]


def _wish(runtime: str, text: Any, *, newer: bool = False) -> Wish | None:
    """`newer`: a bare version is the oldest that will do."""
    if not isinstance(text, str):
        return None
    precision = RUNTIMES[runtime].precision
    if newer and text[:1].isdigit():
        return at_least(text)
    return parse_wish(text, precision, wide_tilde=runtime == "php")


def _asked(runtime: str, text: Any, *, newer: bool = False) -> list[Asked]:
    wish = _wish(runtime, text, newer=newer)
    return [] if wish is None else [Asked(runtime, wish)]


def lines_of(text: str) -> Iterator[str]:
    """Lines without blanks around; what is too long is none of a person's."""
    for number, line in enumerate(text.split("\n")):
        if number == MAX_LINES:
            return
        if len(line) <= MAX_LINE:
            yield line.strip()


def _first_line(text: str) -> str:
    return next((line for line in lines_of(text) if line and not line.startswith("#")), "")


def mapping_of(parse: Callable[[str], Any], text: str) -> Mapping[str, Any]:
    try:
        found = parse(text)
    except DocumentError:
        return {}
    return found if isinstance(found, dict) else {}


def value_at(mapping: Any, *path: str) -> Any:
    for name in path:
        mapping = mapping.get(name) if isinstance(mapping, dict) else None
    return mapping


# --- one version in a file -------------------------------------------------------------------


def _single(runtime: str, *prefixes: str) -> Reader:
    """A file with a version alone, perhaps with a name before it, as `ruby-3.2.2`."""

    def read(text: str) -> list[Asked]:
        line = _first_line(text).partition("#")[0].strip()
        for prefix in prefixes:
            line = line.removeprefix(prefix)
        return _asked(runtime, line)

    return read


def node_version(text: str) -> list[Asked]:
    """Also `lts/*`, `lts/iron`, `node`."""
    line = _first_line(text).partition("#")[0].strip().lower()
    name = line.removeprefix("lts/").removeprefix("lts-")
    if name in NODE_NAMES:
        return _asked("node", NODE_NAMES[name])
    return _asked("node", line.removeprefix("node/")) or [Asked("node")]


def _java_number(text: str) -> str:
    """`temurin-17.0.2`, `openjdk64-11`, `17.0.2-tem`, `1.8`: the number."""
    found = re.search(r"(?:^|[^\d.])(\d{1,3}(?:\.\d{1,4}){0,2})(?![\d.]*bit)", text[:100])
    number = found[1] if found else ""
    return number.removeprefix("1.") if number.startswith("1.") else number


def java_version(text: str) -> list[Asked]:
    number = _java_number(_first_line(text).rpartition("-64-")[2])
    # openjdk64-17: the 64 belongs to the name.
    return _asked("java", number)


def sdkman(text: str) -> list[Asked]:
    found: list[Asked] = []
    for line in lines_of(text):
        name, equals, value = line.partition("=")
        if equals and name.strip() == "java":
            found += _asked("java", _java_number(value.strip()))
    return found


def rust_toolchain(text: str) -> list[Asked]:
    """A channel on a line by itself, or TOML."""
    channel = (
        value_at(mapping_of(parse_toml, text), "toolchain", "channel") if "[" in text else None
    )
    if channel is None:
        channel = _first_line(text) if "[" not in text else ""
    return _rust_channel(channel) or [Asked("rust")]


def _rust_channel(channel: Any) -> list[Asked]:
    if not isinstance(channel, str):
        return []
    if channel.startswith("nightly"):
        return [Asked("rust", None, "rustlang/rust:nightly-slim")]
    return _asked("rust", channel)


# --- lists of tools --------------------------------------------------------------------------


def tool(name: str, version: Any) -> list[Asked]:
    runtime = TOOL_NAMES.get(name.rpartition(":")[2].lower())
    if isinstance(version, list):
        version = version[0] if version else None
    if isinstance(version, dict):
        version = version.get("version")
    if isinstance(version, int | float) and not isinstance(version, bool):
        version = str(version)
    if (
        runtime is None
        or not isinstance(version, str)
        or version in ("system", "none", "os-provided")
    ):
        return []
    if runtime == "java":
        version = _java_number(version)
    elif runtime == "node":
        return node_version(version)
    elif runtime == "rust":
        return _rust_channel(version) or [Asked("rust")]
    return _asked(runtime, version) or [Asked(runtime)]


def tool_versions(text: str) -> list[Asked]:
    """asdf's `.tool-versions`: a tool and its versions a line."""
    found: list[Asked] = []
    for line in lines_of(text):
        words = line.partition("#")[0].split()
        if len(words) > 1:
            found += tool(words[0], words[1])
    return found


def mise(text: str) -> list[Asked]:
    tools = value_at(mapping_of(parse_toml, text), "tools")
    if not isinstance(tools, dict):
        return []
    return [asked for name, version in list(tools.items())[:64] for asked in tool(name, version)]


# --- projects --------------------------------------------------------------------------------


def pyproject(text: str) -> list[Asked]:
    document = mapping_of(parse_toml, text)
    for path in (
        ("project", "requires-python"),
        ("tool", "poetry", "dependencies", "python"),
        ("tool", "hatch", "envs", "default", "python"),
    ):
        if found := _asked("python", value_at(document, *path)):
            return found
    return []


def pipfile(text: str) -> list[Asked]:
    requires = value_at(mapping_of(parse_toml, text), "requires")
    return _asked(
        "python", value_at(requires, "python_full_version") or value_at(requires, "python_version")
    )


def setup_cfg(text: str) -> list[Asked]:
    for line in lines_of(text):
        name, equals, value = line.partition("=")
        if equals and name.strip() == "python_requires":
            return _asked("python", value.strip())
    return []


def package_json(text: str) -> list[Asked]:
    document = mapping_of(parse_json, text)
    found: list[Asked] = []
    manager = value_at(document, "packageManager")
    if isinstance(manager, str) and manager.startswith("bun@"):
        found += _asked("bun", manager.removeprefix("bun@"))
    for runtime in ("node", "bun", "deno"):
        found += _asked(runtime, value_at(document, "engines", runtime), newer=False)
    found += _asked("node", value_at(document, "volta", "node"))
    if any(isinstance(value_at(document, kind, "tsx"), str) for kind in _DEPENDENCIES):
        found.append(Asked("tsx"))
    return found


_DEPENDENCIES = ("dependencies", "devDependencies")


def go_mod(text: str) -> list[Asked]:
    for line in lines_of(text):
        words = line.split()
        if len(words) >= 2 and words[0] == "go":
            return _asked("go", words[1], newer=True)
    return []


def cargo_toml(text: str) -> list[Asked]:
    document = mapping_of(parse_toml, text)
    version = value_at(document, "package", "rust-version")
    if not isinstance(version, str):
        version = value_at(document, "workspace", "package", "rust-version")
    return _asked("rust", version, newer=True)


def global_json(text: str) -> list[Asked]:
    sdk = value_at(mapping_of(parse_jsonc, text), "sdk")
    version = value_at(sdk, "version")
    # 8.0.100: the SDK's own numbers begin at 100, and any of the series will do.
    series = ".".join(version.split(".")[:2]) if isinstance(version, str) else None
    newer = isinstance(value_at(sdk, "rollForward"), str) and "ajor" in value_at(sdk, "rollForward")
    return _asked("dotnet", series, newer=newer)


_TARGET = re.compile(r"<TargetFrameworks?>[^<;]{0,40}?net(\d{1,2}\.\d)")


def msbuild(text: str) -> list[Asked]:
    for line in lines_of(text):
        if found := _TARGET.search(line):
            return _asked("dotnet", found[1], newer=True)
    return []


_GEMFILE = re.compile(r"""ruby[ (]{1,4}(['"][^'"]{1,40}['"](?:, ?['"][^'"]{1,40}['"]){0,3})""")


def gemfile(text: str) -> list[Asked]:
    for line in lines_of(text):
        if line.startswith("ruby") and (found := _GEMFILE.match(line)):
            return _asked("ruby", found[1].replace('"', "").replace("'", ""))
    return []


_POM_TAGS = ("maven.compiler.release", "java.version", "maven.compiler.source", "release",
             "maven.compiler.target")  # fmt: skip


def pom(text: str) -> list[Asked]:
    """Looked at as text: an XML parser would expand what the file defines."""
    for tag in _POM_TAGS:
        start = text.find(f"<{tag}>")
        end = text.find("</", start, start + 100) if start >= 0 else -1
        if end >= 0:
            value = text[start + len(tag) + 2 : end].strip()
            if found := _asked("java", _java_number(value), newer=True):
                return found
    return []


_GRADLE = (
    (re.compile(r"JavaLanguageVersion\.of\(['\"]?(\d{1,2})"), False),
    (re.compile(r"jvmToolchain\(['\"]?(\d{1,2})"), False),
    (re.compile(r"(?:source|target)Compatibility[ =]{1,6}['\"]?(?:1\.)?(\d{1,2})"), True),
    (re.compile(r"JavaVersion\.VERSION_(?:1_)?(\d{1,2})"), True),
)
_KOTLIN = re.compile(r"kotlin\(['\"]|org\.jetbrains\.kotlin")


def gradle(text: str) -> list[Asked]:
    """Kotlin's plugin makes it a project in Kotlin; both have Java's versions."""
    wish: Wish | None = None
    runtime = "java"
    for line in lines_of(text):
        if _KOTLIN.search(line):
            runtime = "kotlin"
        for pattern, newer in _GRADLE:
            if wish is None and (found := pattern.search(line)):
                wish = _wish("java", found[1], newer=newer)
    return [Asked(runtime, wish)]


def composer(text: str) -> list[Asked]:
    document = mapping_of(parse_json, text)
    return _asked("php", value_at(document, "config", "platform", "php")) or _asked(
        "php", value_at(document, "require", "php")
    )


_MIX = re.compile(r"""elixir:[ ]{0,4}["']([^"']{1,60})["']""")


def mix(text: str) -> list[Asked]:
    for line in lines_of(text):
        if found := _MIX.search(line):
            return _asked("elixir", found[1].replace(" or ", "||").replace(" and ", ","))
    return []


_REQUIRED = re.compile(r"""required_version[ ]{0,20}=[ ]{0,20}"([^"]{1,80})\"""")


def terraform(text: str) -> list[Asked]:
    for line in lines_of(text):
        if found := _REQUIRED.match(line):
            return _asked("terraform", found[1])
    return []


_ROCK = re.compile(r"""["']lua[ ]{0,4}([<>=~^ \d.,]{1,40})["']""")


def rockspec(text: str) -> list[Asked]:
    for line in lines_of(text):
        if found := _ROCK.search(line):
            return _asked("lua", found[1])
    return []


def luarc(text: str) -> list[Asked]:
    document = mapping_of(parse_jsonc, text)
    version = value_at(document, "runtime.version") or value_at(document, "runtime", "version")
    return _asked("lua", version.removeprefix("Lua ")) if isinstance(version, str) else []


# Files about versions come before files about projects: who writes one means it.
VERSION_FILES: dict[str, Reader] = {
    ".python-version": _single("python", "python-", "cpython-"),
    "runtime.txt": _single("python", "python-"),
    ".nvmrc": node_version,
    ".node-version": node_version,
    ".dvmrc": _single("deno", "v"),
    ".deno-version": _single("deno", "v"),
    ".bun-version": _single("bun"),
    ".go-version": _single("go", "go"),
    "rust-toolchain.toml": rust_toolchain,
    "rust-toolchain": rust_toolchain,
    ".ruby-version": _single("ruby", "ruby-"),
    ".java-version": java_version,
    ".sdkmanrc": sdkman,
    ".php-version": _single("php"),
    ".elixir-version": _single("elixir"),
    ".exenv-version": _single("elixir"),
    ".terraform-version": _single("terraform"),
    ".opentofu-version": _single("tofu"),
    ".lua-version": _single("lua", "lua-"),
    "global.json": global_json,
    ".tool-versions": tool_versions,
    "mise.toml": mise,
    ".mise.toml": mise,
    ".config/mise.toml": mise,
}
PROJECT_READERS: dict[str, Reader] = {
    "pyproject.toml": pyproject,
    "Pipfile": pipfile,
    "setup.cfg": setup_cfg,
    "package.json": package_json,
    "go.mod": go_mod,
    "Cargo.toml": cargo_toml,
    "Gemfile": gemfile,
    "pom.xml": pom,
    "build.gradle": gradle,
    "build.gradle.kts": gradle,
    "composer.json": composer,
    "mix.exs": mix,
    ".luarc.json": luarc,
    "versions.tf": terraform,
    "terraform.tf": terraform,
    "main.tf": terraform,
}
SUFFIX_READERS: dict[str, Reader] = {
    ".csproj": msbuild,
    ".fsproj": msbuild,
    ".rockspec": rockspec,
}
