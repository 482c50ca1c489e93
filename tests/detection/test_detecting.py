"""From a command and files to a runtime, a version, an image, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.detection import detect
from agentkernel.detection.detecting import Detection
from agentkernel.detection.files import GivenFiles
from agentkernel.detection.tables import RUNTIMES

PROJECTS = Path(__file__).parent / "projects"

# Of each project in one language: runtime, version, who asks for it, image.
EXPECTED = {
    "python": ("python", "3.11", ".python-version", "python:3.11-slim"),
    "node": ("node", "v20.0.0", ".nvmrc", "node:20-slim"),
    "tsx": ("tsx", "^18 || ^20 || >=22", "package.json", "node:22-slim"),
    "deno": ("deno", "2.1.4", ".dvmrc", "denoland/deno:2.1.4"),
    "bun": ("bun", "1.1.38", "package.json", "oven/bun:1"),
    "go": ("go", ">=1.21", "go.mod", "golang:1.25"),
    "rust": ("rust", ">=1.60", "Cargo.toml", "rust:1-slim"),
    "java": ("java", ">=17", "pom.xml", "eclipse-temurin:21"),
    "kotlin": ("kotlin", "21", "build.gradle.kts", "gradle:jdk21"),
    "ruby": ("ruby", "3.1.0", ".ruby-version", "ruby:3.1-slim"),
    "php": ("php", "^8.1", "composer.json", "php:8.4-cli"),
    "c": ("c", None, None, "gcc:14"),
    "cpp": ("c", None, None, "gcc:14"),
    "dotnet": ("dotnet", "8.0", "global.json", "mcr.microsoft.com/dotnet/sdk:8.0"),
    "elixir": ("elixir", "1.16.0-otp-26", ".tool-versions", "elixir:1.16-slim"),
    "lua": ("lua", "5.4", ".lua-version", None),
    "shell": ("shell", None, None, "debian:stable-slim"),
    "terraform": ("terraform", "1.5.0", ".terraform-version", "hashicorp/terraform:1.5"),
}


def words(found: Detection | None) -> tuple[str | None, ...]:
    assert found is not None
    return found.runtime, found.wish.text if found.wish else None, found.source, found.image


def test_every_language_has_a_project() -> None:
    assert {path.name for path in PROJECTS.iterdir()} == EXPECTED.keys()
    languages = {RUNTIMES[runtime].language for runtime, *_ in EXPECTED.values()}
    assert languages == {runtime.language for runtime in RUNTIMES.values()}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_projects(name: str) -> None:
    """The project alone, and a shell in it, which is whatever the project is."""
    found = detect((), PROJECTS / name)
    assert words(found) == EXPECTED[name] == words(detect(["bash", "-l"], PROJECTS / name))
    assert found is not None and found.evidence is not None and found.evidence in found.why


@pytest.mark.parametrize(
    ("files", "command", "expected"),
    [
        # The command comes first, whatever the project is.
        ({"package.json": "{}"}, "python3 x", ("python", None, None, "python:3.13-slim")),
        ({"pyproject.toml": ""}, "npm ci", ("node", None, None, "node:22-slim")),
        (
            {".python-version": "3.9"},
            "python3.12 x",
            ("python", "3.12", "the command", "python:3.12-slim"),
        ),
        # Files about versions come before files about projects.
        (
            {".python-version": "3.10", "pyproject.toml": '[project]\nrequires-python=">=3.11"'},
            "pytest",
            ("python", "3.10", ".python-version", "python:3.10-slim"),
        ),
        (
            {"runtime.txt": "python-3.12.1"},
            "python",
            ("python", "3.12.1", "runtime.txt", "python:3.12-slim"),
        ),
        (
            {"pyproject.toml": '[project]\nrequires-python=">=3.9,<3.12"'},
            "python3",
            ("python", ">=3.9,<3.12", "pyproject.toml", "python:3.11-slim"),
        ),
        (
            {"pyproject.toml": '[tool.poetry.dependencies]\npython="^3.10"'},
            "poetry run x",
            ("python", "^3.10", "pyproject.toml", "python:3.13-slim"),
        ),
        (
            {"pyproject.toml": '[project]\nrequires-python="==3.12.4"'},
            "python3",
            ("python", "==3.12.4", "pyproject.toml", "python:3.12.4-slim"),
        ),
        (
            {"Pipfile": '[requires]\npython_version="3.12"'},
            "python",
            ("python", "3.12", "Pipfile", "python:3.12-slim"),
        ),
        (
            {"setup.cfg": "[options]\npython_requires = >=3.8"},
            "python",
            ("python", ">=3.8", "setup.cfg", "python:3.13-slim"),
        ),
        ({".nvmrc": "lts/iron"}, "node x", ("node", "20", ".nvmrc", "node:20-slim")),
        ({".nvmrc": "lts/*"}, "node x", ("node", None, None, "node:22-slim")),
        ({".node-version": "18"}, "npx tsx a.ts", ("tsx", "18", ".node-version", "node:18-slim")),
        (
            {"package.json": '{"engines": {"node": ">=24"}}'},
            "npm i",
            ("node", ">=24", "package.json", "node:24-slim"),
        ),
        (
            {".tool-versions": "nodejs 20.1.0\npython 3.12.1 system"},
            "python3",
            ("python", "3.12.1", ".tool-versions", "python:3.12-slim"),
        ),
        (
            {"mise.toml": '[tools]\nnode = ["18", "20"]\n"core:go" = {version = "1.22"}'},
            "go build",
            ("go", "1.22", "mise.toml", "golang:1.22"),
        ),
        ({"mise.toml": "[tools]\nruby = 3.2"}, "sh", ("ruby", "3.2", "mise.toml", "ruby:3.2-slim")),
        (
            {"go.mod": "module x\n\ngo 1.27.1\ntoolchain go1.28.0"},
            "go test",
            ("go", ">=1.27.1", "go.mod", "golang:1.27"),
        ),
        (
            {"rust-toolchain": "1.75.0\n"},
            "cargo b",
            ("rust", "1.75.0", "rust-toolchain", "rust:1.75-slim"),
        ),
        (
            {"rust-toolchain.toml": '[toolchain]\nchannel="nightly-2024-01-01"'},
            "cargo b",
            ("rust", None, None, "rustlang/rust:nightly-slim"),
        ),
        (
            {".java-version": "temurin-17.0.2"},
            "java x",
            ("java", "17.0.2", ".java-version", "eclipse-temurin:17"),
        ),
        (
            {".java-version": "1.8"},
            "mvn package",
            ("java", "8", ".java-version", "maven:3-eclipse-temurin-8"),
        ),
        (
            {".sdkmanrc": "java=21.0.2-tem\ngradle=8"},
            "gradle b",
            ("java", "21.0.2", ".sdkmanrc", "gradle:jdk21"),
        ),
        (
            {"build.gradle": "java { toolchain { languageVersion = JavaLanguageVersion.of(11) } }"},
            "./gradlew t",
            ("java", "11", "build.gradle", "gradle:jdk11"),
        ),
        (
            {"build.gradle": "sourceCompatibility = '1.8'"},
            "sh",
            ("java", ">=8", "build.gradle", "eclipse-temurin:21"),
        ),
        (
            {"build.gradle.kts": 'plugins { kotlin("jvm") }\nkotlin { jvmToolchain(17) }'},
            "gradle b",
            ("kotlin", "17", "build.gradle.kts", "gradle:jdk17"),
        ),
        (
            {"Gemfile": 'source "x"\nruby "3.2.2"'},
            "bundle",
            ("ruby", "3.2.2", "Gemfile", "ruby:3.2-slim"),
        ),
        (
            {"composer.json": '{"require": {"php": "~8.1"}}'},
            "composer i",
            ("php", "~8.1", "composer.json", "composer:2"),
        ),
        (
            {"a.csproj": "<Project><TargetFramework>net9.0</TargetFramework></Project>"},
            "dotnet b",
            ("dotnet", ">=9.0", "a.csproj", "mcr.microsoft.com/dotnet/sdk:10.0"),
        ),
        (
            {"mix.exs": 'elixir: "~> 1.15 and < 1.17"'},
            "mix t",
            ("elixir", "~> 1.15,< 1.17", "mix.exs", "elixir:1.16-slim"),
        ),
        (
            {"versions.tf": 'terraform {\n  required_version = "~> 1.5.0"\n}'},
            "terraform plan",
            ("terraform", "~> 1.5.0", "versions.tf", "hashicorp/terraform:1.5"),
        ),
        (
            {".luarc.json": '{"runtime.version": "Lua 5.3"}'},
            "lua x",
            ("lua", "5.3", ".luarc.json", None),
        ),
        # Dockerfile and devcontainer.json, if whose image it is is known.
        (
            {"Dockerfile": "ARG V=3.11\nFROM --platform=x python:${V}-bookworm AS a\nFROM scratch"},
            "sh",
            ("python", "3.11", "Dockerfile", "python:3.11-bookworm"),
        ),
        (
            {"Dockerfile": "FROM docker.io/library/node:20-alpine"},
            "npm t",
            ("node", "20", "Dockerfile", "node:20-alpine"),
        ),
        (
            {"Dockerfile": "FROM gradle:8-jdk17"},
            "./gradlew",
            ("java", "17", "Dockerfile", "gradle:jdk17"),
        ),
        (
            {
                ".devcontainer/devcontainer.json": '{ // x\n"image": '
                '"mcr.microsoft.com/devcontainers/go:1-1.22-bookworm", }'
            },
            "go t",
            (
                "go",
                "1.22",
                ".devcontainer/devcontainer.json",
                "mcr.microsoft.com/devcontainers/go:1-1.22-bookworm",
            ),
        ),
        (
            {
                ".devcontainer/devcontainer.json": '{"build": {"dockerfile": "Dockerfile"}}',
                ".devcontainer/Dockerfile": "FROM ruby:3.3",
            },
            "sh",
            ("ruby", "3.3", ".devcontainer/devcontainer.json", "ruby:3.3"),
        ),
        (
            {
                ".devcontainer.json": '{"features": {"ghcr.io/devcontainers/features/python:1": '
                '{"version": "3.12"}}}'
            },
            "sh",
            ("python", "3.12", ".devcontainer.json", "python:3.12-slim"),
        ),
        # Make wants an image that has make.
        ({"pyproject.toml": ""}, "make", ("python", None, None, "python:3.13")),
        ({"main.go": "package main"}, "make", ("go", None, None, "golang:1.25")),
        ({}, "make", ("c", None, None, "gcc:14")),
        ({}, "cmake .", ("c", None, None, None)),
    ],
)
def test_rules(files: dict[str, str], command: str, expected: tuple[str | None, ...]) -> None:
    project = GivenFiles({name: text.encode() for name, text in files.items()})
    assert words(detect(command.split(), files=project)) == expected


@pytest.mark.parametrize(
    "text", ["FROM evil.example/python:3.12", "FROM python@sha256:0", "FROM localhost:5000/node",
             "FROM $X", "FROM library/../python:3", "FROM Python:3.12", "FROM python:3.12;x"],
)  # fmt: skip
def test_an_image_of_somebodys_is_not_taken(text: str) -> None:
    """A project does not choose which host is asked with our credentials."""
    assert detect(["sh"], files=GivenFiles({"Dockerfile": text.encode()})) == detect(
        ["sh"], files=GivenFiles({})
    )


def test_nearer_files_win_and_the_top_ends_it(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".python-version").write_text("3.9")
    assert words(detect(["python3"], inner))[1] is None
    assert words(detect(["python3"], inner, top=str(tmp_path)))[1] == "3.9"
    (tmp_path / "a" / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.12"')
    assert words(detect(["python3"], inner, top=str(tmp_path)))[1] == ">=3.12"
    assert words(detect(["python3"], inner, top=str(tmp_path / "a" / "b")))[1] is None


def test_nothing_tells(tmp_path: Path) -> None:
    assert detect((), tmp_path) is None
    assert detect(["ls"], tmp_path) is None
    assert detect(["ls"], tmp_path / "absent") is None


def test_what_it_says() -> None:
    files = GivenFiles({".python-version": b"3.12\n"})
    found = detect(["python3", "x.py"], files=files)
    assert (
        found is not None and found.why == "python3 runs Python, and .python-version asks for 3.12"
    )
    assert found.to_dict() == {
        "runtime": "python",
        "language": "Python",
        "version": "3.12",
        "version_from": ".python-version",
        "evidence": ".python-version",
        "image": "python:3.12-slim",
        "tools": ["python3"],
        "why": found.why,
    }
    found = detect(["make"], files=files)
    assert found is not None
    assert found.why == ".python-version makes it a project in Python and asks for 3.12"
    assert found.to_dict()["tools"] == ["make", "python3"]
