"""Known layouts of toolchains outside `/usr`: where they live and what of them a sandbox needs.

Only data. `toolchains.py` says how it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Layout:
    """One tool manager.

    `places` are where its root may be, relative to the home unless absolute; `variable`, if set
    and a path, comes first. `show` says how much of the root a PATH entry below it needs: all of
    it, the directory `part` only, or the one version whose path matches `part` (with `*`).
    `hidden` are paths in the root that stay outside (`*` is one name). `exported` variables are
    set to the root.
    """

    name: str
    commands: str
    places: tuple[str, ...]
    variable: str = ""
    show: Literal["root", "part", "version"] = "root"
    part: str = ""
    hidden: tuple[str, ...] = ()
    exported: tuple[str, ...] = ()
    note: str = ""


PYENV_HOOK = "pyenv.d/exec/pip-rehash"

LAYOUTS = (
    Layout(
        "pyenv",
        "python, pip",
        (".pyenv",),
        "PYENV_ROOT",
        # The hook would run `pyenv rehash` after pip, and fail: the shims are read-only.
        hidden=("cache", "sources", "plugins/*/.git", "versions/*/pip.conf", PYENV_HOOK),
        exported=("PYENV_ROOT",),
    ),
    Layout(
        "rbenv",
        "ruby, gem, bundle",
        (".rbenv",),
        "RBENV_ROOT",
        hidden=("cache", "plugins/*/.git", "rbenv.d/exec/gem-rehash.bash"),
        exported=("RBENV_ROOT",),
    ),
    Layout("nodenv", "node, npm", (".nodenv",), "NODENV_ROOT", exported=("NODENV_ROOT",)),
    Layout("goenv", "go", (".goenv",), "GOENV_ROOT", exported=("GOENV_ROOT",)),
    Layout("jenv", "java", (".jenv",), "JENV_ROOT", exported=("JENV_ROOT",)),
    Layout("plenv", "perl", (".plenv",), "PLENV_ROOT", exported=("PLENV_ROOT",)),
    Layout(
        "nvm",
        "node, npm, npx",
        (".nvm", ".config/nvm"),
        "NVM_DIR",
        show="version",
        part="versions/node/*",
        hidden=("etc/npmrc", "lib/node_modules/npm/npmrc"),
    ),
    Layout(
        "fnm",
        "node, npm, npx",
        (".local/share/fnm", ".fnm"),
        "FNM_DIR",
        show="version",
        part="node-versions/*/installation",
        hidden=("etc/npmrc", "lib/node_modules/npm/npmrc"),
    ),
    Layout(
        "Volta",
        "node, npm, yarn",
        (".volta",),
        "VOLTA_HOME",
        hidden=("cache", "log", "tools/image/*/*/etc/npmrc"),
        exported=("VOLTA_HOME",),
    ),
    Layout(
        "asdf",
        "its shims",
        (".asdf",),
        "ASDF_DATA_DIR",
        hidden=("downloads", "plugins/*/.git", "installs/*/*/pip.conf", "installs/*/*/etc/npmrc"),
        exported=("ASDF_DATA_DIR",),
    ),
    Layout(
        "mise",
        "its installs and shims",
        (".local/share/mise",),
        "MISE_DATA_DIR",
        hidden=("downloads", "plugins/*/.git", "installs/*/*/pip.conf", "installs/*/*/etc/npmrc"),
        exported=("MISE_DATA_DIR",),
        note="mise's global configuration is not shown: shims follow the project's files only.",
    ),
    Layout(
        "uv",
        "python",
        (".local/share/uv/python",),
        "UV_PYTHON_INSTALL_DIR",
        hidden=("*/pip.conf", ".cache", ".temp"),
    ),
    Layout("cargo", "cargo, rustc", (".cargo",), "CARGO_HOME", show="part", part="bin"),
    Layout(
        "rustup",
        "cargo, rustc",
        (".rustup",),
        "RUSTUP_HOME",
        hidden=("downloads", "tmp"),
        exported=("RUSTUP_HOME",),
    ),
    Layout("Go programs", "what `go install` made", ("go",), "GOPATH", show="part", part="bin"),
    Layout("Deno", "deno", (".deno",), "DENO_INSTALL", show="part", part="bin"),
    Layout("Bun globals", "global packages", (".bun/install/global",)),
    Layout("Bun", "bun", (".bun",), "BUN_INSTALL", show="part", part="bin"),
    Layout("pnpm", "pnpm", (".local/share/pnpm",), "PNPM_HOME", hidden=("store", ".tools/*/*/etc")),
    Layout("~/.local/bin", "pip, pipx and uv programs", (".local",), show="part", part="bin"),
    Layout("GHCup", "ghc, cabal", (".ghcup",), hidden=("cache", "logs", "tmp", "config.yaml")),
    Layout("elan", "lean, lake", (".elan",), "ELAN_HOME", exported=("ELAN_HOME",)),
    Layout(".NET", "dotnet", (".dotnet",), "DOTNET_ROOT", exported=("DOTNET_ROOT",)),
    Layout(
        "SDKMAN",
        "java and friends",
        (".sdkman",),
        "SDKMAN_DIR",
        show="version",
        part="candidates/*/*",
    ),
    Layout(
        "Homebrew",
        "brew's programs",
        ("/home/linuxbrew/.linuxbrew", ".linuxbrew"),
        "HOMEBREW_PREFIX",
        hidden=("var", "Homebrew/.git", "etc/gitconfig", "etc/pip.conf", "etc/my.cnf"),
        exported=("HOMEBREW_PREFIX",),
    ),
)

# Hidden in every tree that has them: repositories name their remotes, the others hold tokens.
ALWAYS_HIDDEN = (
    ".git",
    ".git-credentials",
    ".gitconfig",
    ".netrc",
    ".npmrc",
    "etc/npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".condarc",
    "condarc",
    ".env",
    ".pypirc",
    "pip.conf",
    "credentials",
    "credentials.toml",
    "credentials.json",
    "config.json",
    "auth.json",
)
CONDA_HIDDEN = (
    "pkgs/cache",
    "pkgs/urls",
    "pkgs/urls.txt",
    "conda-meta/history",
    "envs/*/.condarc",
    "envs/*/pip.conf",
    "envs/*/conda-meta/history",
)

# Directories of a home that are never shown, nor anything in them but what a layout names.
SENSITIVE = (
    ".ssh",
    ".aws",
    ".azure",
    ".config",
    ".docker",
    ".gnupg",
    ".kube",
    ".mozilla",
    ".password-store",
    ".pki",
    ".thunderbird",
    ".cache",
    "snap",
)
# Where nothing is a toolchain, or where looking is slow (network and Windows drives).
NEVER_BELOW = (
    "/boot",
    "/dev",
    "/etc",
    "/lost+found",
    "/media",
    "/mnt",
    "/proc",
    "/run",
    "/snap",
    "/sys",
    "/tmp",
    "/var/lib/snapd",
    "/var/run",
    "/var/tmp",
)
# Directories that many things share: never a prefix as a whole.
SHARED = ("", "/home", "/opt", "/root", "/srv", "/var", "/var/lib", "/var/opt", "/nix", "/data")
# In a prefix one of these lies beside `bin`; a directory without them may be somebody's data.
PREFIX_SIGNS = ("lib", "lib64", "libexec", "conda-meta")

# Passed on, when they point into what is shown.
PATH_VARIABLES = (
    "JAVA_HOME",
    "GOROOT",
    "DOTNET_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "ASDF_DIR",
    "HOMEBREW_CELLAR",
    "HOMEBREW_REPOSITORY",
)
# Passed on when they are plain version names.
VERSION_VARIABLES = ("PYENV_VERSION", "RBENV_VERSION", "NODENV_VERSION", "RUSTUP_TOOLCHAIN")
