"""What of this process's environment says which toolchains the `host` image should show.

The daemon has an environment of its own, that of whoever started it; the PATH that counts is the
one of whoever asks, with the interpreter they see.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from agentkernel.client.daemon import Daemon
    from agentkernel.client.remote import Remote

# The same that images/layouts.py looks at; a test compares them.
NAMES = (
    "PATH", "ASDF_DATA_DIR", "ASDF_DIR", "BUN_INSTALL", "CARGO_HOME", "CONDA_PREFIX",
    "DENO_INSTALL", "DOTNET_ROOT", "ELAN_HOME", "FNM_DIR", "GOENV_ROOT", "GOPATH", "GOROOT",
    "HOMEBREW_CELLAR", "HOMEBREW_PREFIX", "HOMEBREW_REPOSITORY", "JAVA_HOME", "JENV_ROOT",
    "MISE_DATA_DIR", "NODENV_ROOT", "NODENV_VERSION", "NVM_DIR", "PLENV_ROOT", "PNPM_HOME",
    "PYENV_ROOT", "PYENV_VERSION", "RBENV_ROOT", "RBENV_VERSION", "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN", "SDKMAN_DIR", "UV_PYTHON_INSTALL_DIR", "VIRTUAL_ENV", "VOLTA_HOME",
)  # fmt: skip


def host_environment(daemon: Daemon | Remote | None = None) -> dict[str, str]:
    """Entries that are not text are left out: JSON can't carry them. Nothing for a daemon that does
    not see what we see: what is where on this machine is none of its business."""
    if daemon is not None and not daemon.shares_host:
        return {}
    return {
        name: ":".join(entry for entry in os.environ[name].split(":") if entry.isprintable())
        for name in NAMES
        if name in os.environ
    }
