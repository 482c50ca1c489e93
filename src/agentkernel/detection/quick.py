"""Whether there is anything to detect. Light: every `run` asks, and most need no more than this."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from collections.abc import Sequence

# Programs that say what they want, or stand before one that does; tables.py has the same, and a
# test compares them.
_NAMES = """
ant bash black bun bundle bundler bunx c++ cargo cc celery clang clang++ cmake command composer
corepack ctest dash deno django-admin dotnet elixir elixirc env erb exec flake8 flask g++ gcc
gem go gofmt golangci-lint gradle gradlew gunicorn hatch iex ipython irb jar java javac jest
jshell jupyter kotlin kotlinc kotlinc-jvm lua luac luajit luarocks make meson mix mvn mvnw mypy
nice ninja node nodejs nohup nox npm npx pdm php phpunit pip pip3 pipenv pipx pnpm poetry pytest
python python3 rails rake rspec ruby ruff rustc rustdoc rustup sh stdbuf sudo terraform
terragrunt time timeout tofu tox ts-node tsc tsx uv uvicorn uvx vite vitest yarn zsh
"""
PROGRAMS = frozenset(_NAMES.split())
# Files that say which version is wanted, or what a project is made of.
EVIDENCE = (
    ".python-version", "runtime.txt", "pyproject.toml", "Pipfile", "setup.cfg", "setup.py",
    "requirements.txt", ".nvmrc", ".node-version", "package.json", "deno.json", "deno.jsonc",
    ".dvmrc", ".deno-version", "bunfig.toml", "bun.lock", "bun.lockb", ".bun-version",
    "tsconfig.json", ".tool-versions", "mise.toml", ".mise.toml", ".config/mise.toml", "go.mod",
    ".go-version", "rust-toolchain", "rust-toolchain.toml", "Cargo.toml", "global.json",
    ".ruby-version", "Gemfile", ".java-version", ".sdkmanrc", "pom.xml", "build.gradle",
    "build.gradle.kts", ".php-version", "composer.json", "mix.exs", ".elixir-version",
    ".exenv-version", ".terraform-version", ".opentofu-version", "versions.tf", "main.tf",
    "terraform.tf", ".lua-version", ".luarc.json", "CMakeLists.txt", "meson.build", "configure.ac",
    "configure", "Makefile", "makefile", "GNUmakefile", "Dockerfile", "Containerfile",
    ".devcontainer/devcontainer.json", ".devcontainer.json",
)  # fmt: skip
MAX_ABOVE = 16


def directories_of(start: str, top: str) -> list[str]:
    """`start` and what is above it, up to `top`, nearest first."""
    found = [start]
    while found[-1] != top and len(found) < MAX_ABOVE:
        above = os.path.dirname(found[-1])
        if above == found[-1]:
            break
        found.append(above)
    return found


def located(program: str, path: str) -> str | None:
    """Where a program is on a PATH. Only absolute entries count: others depend on where one is."""
    if "/" in program or "\0" in program or not program:
        return None
    for directory in path.split(":"):
        if directory.startswith("/") and "\0" not in directory:
            place = os.path.join(directory, program)
            if os.path.isfile(place) and os.access(place, os.X_OK):
                return place
    return None


def is_plain(words: Sequence[str], directories: Sequence[str], path: str) -> bool:
    """This machine has the program, and nothing near here asks for a version of it: the `host`
    image will do, and there is nothing to say about it."""
    program = words[0]
    if (
        program.startswith(("/usr/", "/bin/", "/sbin/"))
        and program.rpartition("/")[2] not in PROGRAMS
    ):
        return True
    if located(program, path) is None:
        return False
    if program not in PROGRAMS and not program[-1:].isdigit():
        return True
    return not any(
        os.path.lexists(os.path.join(directory, name))
        for directory in directories
        for name in EVIDENCE
    )
