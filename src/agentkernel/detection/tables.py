"""Runtimes, their images and their programs. Only data; `detecting` says how it is used.

Images are the official ones of Docker Hub or of whoever makes the runtime. Where there is none,
there is no image: somebody's own would be a choice that only the user can make.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Runtime:
    """`image` has `{}` for the series. `series` are those known to have an image, newest first;
    `precision` is how many numbers a series has. `family`: whose versions it has. `programs`: any
    of them on this machine is the runtime, the first one is its name in messages."""

    key: str
    label: str
    language: str
    programs: tuple[str, ...]
    image: str | None = None
    precision: int = 2
    default: str = ""
    series: tuple[str, ...] = ()
    family: str = ""
    install: str = ""

    @property
    def versions(self) -> str:
        return self.family or self.key


@dataclass(frozen=True, slots=True)
class Program:
    """A program that tells the runtime. `bundled`: the runtime's image has it. `image` instead of
    the runtime's; "" if no official image has the program."""

    runtime: str
    bundled: bool = True
    image: str | None = None


_NODES = ("24", "22", "20", "18", "16")
_JAVAS = ("25", "21", "17", "11", "8")

RUNTIMES: dict[str, Runtime] = {
    runtime.key: runtime
    for runtime in (
        Runtime("python", "Python", "Python", ("python3", "python"), "python:{}-slim", 2, "3.13",
                ("3.14", "3.13", "3.12", "3.11", "3.10", "3.9", "3.8"), install="python3"),
        Runtime("node", "Node.js", "JavaScript", ("node", "nodejs"), "node:{}-slim", 1, "22",
                _NODES, install="nodejs npm"),
        Runtime("tsx", "TypeScript on Node.js", "TypeScript", ("node", "nodejs"), "node:{}-slim",
                1, "22", _NODES, family="node", install="nodejs npm"),
        Runtime("deno", "Deno", "TypeScript", ("deno",), "denoland/deno:{}", 3, "latest"),
        Runtime("bun", "Bun", "TypeScript", ("bun",), "oven/bun:{}", 1, "1", ("1",)),
        Runtime("go", "Go", "Go", ("go",), "golang:{}", 2, "1.25",
                ("1.26", "1.25", "1.24", "1.23", "1.22", "1.21", "1.20"), install="golang-go"),
        Runtime("rust", "Rust", "Rust", ("cargo", "rustc"), "rust:{}-slim", 2, "1",
                install="cargo"),
        Runtime("java", "Java", "Java", ("java",), "eclipse-temurin:{}", 1, "21", _JAVAS,
                install="default-jdk-headless"),
        Runtime("kotlin", "Kotlin", "Kotlin", ("kotlinc", "kotlin", "gradle", "java"),
                "gradle:jdk{}", 1, "21", _JAVAS, family="java", install="kotlin"),
        Runtime("ruby", "Ruby", "Ruby", ("ruby",), "ruby:{}-slim", 2, "3.4",
                ("3.4", "3.3", "3.2", "3.1", "3.0", "2.7"), install="ruby"),
        Runtime("php", "PHP", "PHP", ("php",), "php:{}-cli", 2, "8.4",
                ("8.4", "8.3", "8.2", "8.1", "8.0", "7.4"), install="php-cli"),
        Runtime("c", "C or C++", "C/C++", ("cc", "gcc", "clang", "g++"), "gcc:{}", 1, "14",
                ("15", "14", "13", "12", "11"), install="build-essential"),
        Runtime("dotnet", ".NET", "C#", ("dotnet",), "mcr.microsoft.com/dotnet/sdk:{}", 2, "8.0",
                ("10.0", "9.0", "8.0", "7.0", "6.0")),
        Runtime("elixir", "Elixir", "Elixir", ("elixir",), "elixir:{}-slim", 2, "1.18",
                ("1.19", "1.18", "1.17", "1.16", "1.15", "1.14"), install="elixir"),
        Runtime("lua", "Lua", "Lua", ("lua", "lua5.4", "lua5.3", "lua5.1", "luajit"), None, 2,
                "5.4", ("5.4", "5.3", "5.2", "5.1"), install="lua5.4"),
        Runtime("shell", "shell", "shell", ("sh", "bash"), "debian:{}-slim", 1, "stable"),
        Runtime("terraform", "Terraform", "Terraform", ("terraform",), "hashicorp/terraform:{}", 2,
                "1.9", ("1.9", "1.8", "1.7", "1.6", "1.5", "1.4", "1.3")),
        Runtime("tofu", "OpenTofu", "Terraform", ("tofu",), "ghcr.io/opentofu/opentofu:{}", 2,
                "1.9", ("1.9", "1.8", "1.7", "1.6")),
    )
}  # fmt: skip


def _all(
    runtime: str, names: str, *, bundled: bool = True, image: str | None = None
) -> dict[str, Program]:
    return dict.fromkeys(names.split(), Program(runtime, bundled, image))


PROGRAMS: dict[str, Program] = {
    **_all("python", "python python3 pip pip3"),
    **_all("python", "pytest tox nox mypy ruff black flake8 ipython jupyter uvicorn gunicorn flask "
           "django-admin celery hatch pdm poetry pipenv pipx", bundled=False),
    **_all("python", "uv uvx", image="ghcr.io/astral-sh/uv:python{}-bookworm-slim"),
    **_all("node", "node nodejs npm npx yarn corepack"),
    **_all("node", "pnpm jest vite vitest", bundled=False),
    **_all("tsx", "tsx ts-node tsc", bundled=False),
    **_all("deno", "deno"),
    **_all("bun", "bun bunx"),
    **_all("go", "go gofmt"),
    **_all("go", "golangci-lint", bundled=False),
    **_all("rust", "cargo rustc rustdoc rustup"),
    **_all("java", "java javac jar jshell"),
    **_all("java", "mvn mvnw", image="maven:3-eclipse-temurin-{}"),
    **_all("java", "gradle gradlew", image="gradle:jdk{}"),
    **_all("java", "ant", image=""),
    **_all("kotlin", "kotlin kotlinc kotlinc-jvm", image=""),
    **_all("ruby", "ruby gem bundle bundler irb erb rake"),
    **_all("ruby", "rails rspec", bundled=False),
    **_all("php", "php"),
    **_all("php", "composer", image="composer:2"),
    **_all("php", "phpunit", bundled=False),
    **_all("c", "gcc g++ cc c++"),
    **_all("c", "clang clang++ cmake ctest meson ninja", image=""),
    **_all("dotnet", "dotnet"),
    **_all("elixir", "elixir elixirc mix iex"),
    **_all("lua", "lua luac luajit luarocks"),
    **_all("terraform", "terraform"),
    **_all("terraform", "terragrunt", bundled=False),
    **_all("tofu", "tofu"),
}  # fmt: skip
# They say nothing about what they run: the project does, and without one they are shells or C.
NEUTRAL = {"sh": "shell", "bash": "shell", "dash": "shell", "zsh": "shell", "make": "c"}
# They stand before the program that counts; with how many words of their own besides options.
WRAPPERS = {
    "env": 0, "nice": 0, "nohup": 0, "time": 0, "timeout": 1, "stdbuf": 0, "sudo": 0, "exec": 0,
    "command": 0,
}  # fmt: skip
# Options of those that take the next word, too.
WRAPPER_VALUES = {
    "env": ("-u", "--unset", "-C", "--chdir"), "nice": ("-n",), "timeout": ("-s", "-k"),
    "stdbuf": ("-i", "-o", "-e"), "sudo": ("-u", "-g"), "exec": ("-a",),
}  # fmt: skip
# What `npx`, `bunx` and the like run.
RUNNERS = ("npx", "pnpx", "yarn", "bunx")

EXTENSIONS: dict[str, str] = {
    "py": "python", "js": "node", "mjs": "node", "cjs": "node", "ts": "tsx", "mts": "tsx",
    "tsx": "tsx", "go": "go", "rs": "rust", "java": "java", "jar": "java", "kt": "kotlin",
    "kts": "kotlin", "rb": "ruby", "php": "php", "c": "c", "cc": "c", "cpp": "c", "cxx": "c",
    "csx": "dotnet", "ex": "elixir", "exs": "elixir", "lua": "lua", "sh": "shell", "bash": "shell",
    "tf": "terraform",
}  # fmt: skip
# A project file says the runtime, and no version unless a reader finds one in it. In this order.
PROJECT_FILES: dict[str, str] = {
    "deno.json": "deno", "deno.jsonc": "deno", "deno.lock": "deno", "bunfig.toml": "bun",
    "bun.lock": "bun", "bun.lockb": "bun", "go.mod": "go", "Cargo.toml": "rust",
    "pyproject.toml": "python", "Pipfile": "python", "setup.py": "python", "setup.cfg": "python",
    "requirements.txt": "python", "uv.lock": "python", "poetry.lock": "python", "mix.exs": "elixir",
    "composer.json": "php", "Gemfile": "ruby", "Rakefile": "ruby", "build.gradle.kts": "java",
    "build.gradle": "java", "pom.xml": "java", "tsconfig.json": "tsx", "package.json": "node",
    "global.json": "dotnet", "CMakeLists.txt": "c", "meson.build": "c", "configure.ac": "c",
    ".luarc.json": "lua", ".luacheckrc": "lua", ".terraform.lock.hcl": "terraform",
    "main.tf": "terraform",
}  # fmt: skip
# The same by the end of a name; after the above.
PROJECT_SUFFIXES: dict[str, str] = {
    ".csproj": "dotnet", ".fsproj": "dotnet", ".sln": "dotnet", ".gemspec": "ruby",
    ".rockspec": "lua", ".tf": "terraform",
}  # fmt: skip
# Only sources: the weakest sign there is.
SOURCE_SUFFIXES: dict[str, str] = {
    ".py": "python", ".go": "go", ".rs": "rust", ".java": "java", ".kt": "kotlin", ".rb": "ruby",
    ".php": "php", ".ts": "tsx", ".mjs": "node", ".js": "node", ".exs": "elixir", ".lua": "lua",
    ".cpp": "c", ".cc": "c", ".c": "c", ".sh": "shell",
}  # fmt: skip

# Names of other tools' lists: asdf, mise, devcontainer features.
TOOL_NAMES: dict[str, str] = {
    "python": "python", "node": "node", "nodejs": "node", "deno": "deno", "bun": "bun",
    "golang": "go", "go": "go", "rust": "rust", "java": "java", "kotlin": "kotlin", "ruby": "ruby",
    "php": "php", "dotnet": "dotnet", "dotnet-core": "dotnet", "elixir": "elixir", "lua": "lua",
    "terraform": "terraform", "opentofu": "tofu",
}  # fmt: skip
# Repositories whose images a project's own file may ask for: whose they are is known.
OFFICIAL_IMAGES: dict[str, str] = {
    "python": "python", "node": "node", "denoland/deno": "deno", "oven/bun": "bun", "golang": "go",
    "rust": "rust", "eclipse-temurin": "java", "openjdk": "java", "maven": "java", "gradle": "java",
    "ruby": "ruby", "php": "php", "composer": "php", "gcc": "c", "elixir": "elixir",
    "hashicorp/terraform": "terraform", "mcr.microsoft.com/dotnet/sdk": "dotnet", "bash": "shell",
    "mcr.microsoft.com/devcontainers/python": "python",
    "mcr.microsoft.com/devcontainers/javascript-node": "node",
    "mcr.microsoft.com/devcontainers/typescript-node": "tsx",
    "mcr.microsoft.com/devcontainers/go": "go", "mcr.microsoft.com/devcontainers/rust": "rust",
    "mcr.microsoft.com/devcontainers/java": "java", "mcr.microsoft.com/devcontainers/ruby": "ruby",
    "mcr.microsoft.com/devcontainers/php": "php", "mcr.microsoft.com/devcontainers/cpp": "c",
    "mcr.microsoft.com/devcontainers/dotnet": "dotnet",
}  # fmt: skip
# Node's long-term releases by name, as .nvmrc has them.
NODE_NAMES = {
    "argon": "4", "boron": "6", "carbon": "8", "dubnium": "10", "erbium": "12", "fermium": "14",
    "gallium": "16", "hydrogen": "18", "iron": "20", "jod": "22", "krypton": "24",
}  # fmt: skip
