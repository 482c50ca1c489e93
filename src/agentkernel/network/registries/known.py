"""What package clients ask when a machine's configuration says nothing, by their own defaults.

These are public names. Where a machine names a mirror instead, they are not allowed by its rules.
"""

from __future__ import annotations

from agentkernel.network.registries.model import Ecosystem, Registry

DEFAULT = "its default"

PIP = ("pypi.org", "files.pythonhosted.org")
NPM = ("registry.npmjs.org", "registry.yarnpkg.com")
CARGO = ("index.crates.io", "static.crates.io", "crates.io")
GO_PROXY = "proxy.golang.org"
GO_SUMS = "sum.golang.org"
MAVEN = ("repo.maven.apache.org", "repo1.maven.org")
GRADLE = ("plugins.gradle.org", "plugins-artifacts.gradle.org")
GEMS = ("rubygems.org", "index.rubygems.org")
APT = (
    "deb.debian.org",
    "security.debian.org",
    "archive.ubuntu.com",
    "security.ubuntu.com",
    "ports.ubuntu.com",
)
"""apt has no default of its own; these are what Debian's and Ubuntu's images come with."""


def default(ecosystem: Ecosystem, host: str, *, scheme: str = "https") -> Registry:
    """A registry that no file names."""
    return Registry(
        ecosystem=ecosystem,
        url=f"{scheme}://{host}/",
        host=host,
        port=443 if scheme == "https" else 80,
        source=DEFAULT,
        named=False,
    )


def defaults(ecosystem: Ecosystem, hosts: tuple[str, ...]) -> list[Registry]:
    return [default(ecosystem, host) for host in hosts]


def with_company(
    ecosystem: Ecosystem, hosts: tuple[str, ...], named: list[Registry]
) -> list[Registry]:
    """`named`, and the other public hosts if it has one of them: they send clients on to each
    other."""
    if not any(item.host in hosts for item in named):
        return named
    there = {(item.host, item.port) for item in named}
    return named + [default(ecosystem, host) for host in hosts if (host, 443) not in there]
