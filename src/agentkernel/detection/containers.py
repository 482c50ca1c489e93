"""What a Dockerfile and a devcontainer.json say about a project's runtime.

The image they name is used only if whose it is is known (`tables.OFFICIAL_IMAGES`): a project that
was cloned must not choose which host we ask, with whose credentials. Any other is told, not taken.
"""

from __future__ import annotations

import re

from agentkernel.detection.files import ProjectFiles
from agentkernel.detection.readers import Asked, lines_of, mapping_of, tool, value_at
from agentkernel.detection.tables import OFFICIAL_IMAGES, RUNTIMES
from agentkernel.detection.versions import parse_wish
from agentkernel.documents import parse_jsonc

_REFERENCE = re.compile(r"[a-z0-9][a-z0-9._/-]{0,200}(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?\Z")
_VARIABLE = re.compile(r"\$\{(\w{1,64})(?::-([^}]{0,64}))?\}|\$(\w{1,64})")
_DEVCONTAINER = "mcr.microsoft.com/devcontainers/"


def dockerfile(text: str) -> list[Asked]:
    """The first stage whose base is a known one."""
    arguments: dict[str, str] = {}
    for line in lines_of(text):
        words = line.split()
        if len(words) < 2:
            continue
        if words[0].upper() == "ARG":
            name, _, value = words[1].partition("=")
            if len(arguments) < 64:
                arguments[name] = value.strip("\"'")
        elif words[0].upper() == "FROM":
            base = next((word for word in words[1:] if not word.startswith("--")), "")
            if found := image(_VARIABLE.sub(lambda m: _value(m, arguments), base)):
                return found
    return []


def _value(match: re.Match[str], arguments: dict[str, str]) -> str:
    return arguments.get(match[1] or match[3]) or match[2] or ""


def image(reference: str) -> list[Asked]:
    """A reference of a known repository, with the version its tag has."""
    reference = reference.removeprefix("docker.io/").removeprefix("library/")
    if not _REFERENCE.match(reference) or ".." in reference:
        return []
    name, _, tag = reference.partition(":")
    runtime = OFFICIAL_IMAGES.get(name)
    if runtime is None:
        return []
    versions = RUNTIMES[runtime].versions
    return [
        Asked(runtime, parse_wish(_version_in(name, tag), RUNTIMES[versions].precision), reference)
    ]


def _version_in(name: str, tag: str) -> str:
    if name in ("maven", "gradle"):
        java = re.search(r"(?:jdk|temurin|openjdk)-?(\d{1,2})", tag)
        return java[1] if java else ""
    if name == "composer":
        return ""
    if name.startswith(_DEVCONTAINER) and (own := re.match(r"[\d.]{1,12}-(?=\d)", tag)):
        tag = tag[own.end() :]
    found = re.match(r"\d{1,6}(?:\.\d{1,6}){0,2}", tag)
    return found[0] if found else ""


def devcontainer(text: str, files: ProjectFiles) -> list[Asked]:
    document = mapping_of(parse_jsonc, text)
    reference = value_at(document, "image")
    found = image(reference) if isinstance(reference, str) else []
    path = value_at(document, "build", "dockerfile") or value_at(document, "dockerFile")
    if not found and isinstance(path, str):
        content = files.read(f".devcontainer/{path.removeprefix('./')}")
        found = dockerfile(content) if content is not None else []
    features = value_at(document, "features")
    if not found and isinstance(features, dict):
        for name, options in list(features.items())[:64]:
            name_of_tool = name.rpartition("/")[2].partition(":")[0]
            version = value_at(options, "version") if isinstance(options, dict) else options
            found += tool(name_of_tool, version if isinstance(version, str) else "latest")
    return found


CONTAINER_FILES = (
    "Dockerfile",
    "Containerfile",
    ".devcontainer/devcontainer.json",
    ".devcontainer.json",
)


def read_container(path: str, files: ProjectFiles) -> list[Asked]:
    text = files.read(path)
    if text is None:
        return []
    return devcontainer(text, files) if path.endswith(".json") else dockerfile(text)
