"""What each package client of a sandbox is told: the machine's registries, in the client's words.

A client that the machine says nothing about is told nothing: its defaults are what is allowed. The
files are the systems' own, so that a project's or a user's settings inside still come before them.
Credentials stand there as placeholders, or not at all.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote

from agentkernel.network.guest_files.paths import BUNDLE, DIRECTORY
from agentkernel.network.registries.go import split_proxies
from agentkernel.network.registries.known import APT
from agentkernel.network.registries.model import Credential, Machine, Registry

Placeholder = Callable[[str, str], str | None]
"""A credential's reference and value → what stands for it inside, or None: it is left out."""

NPMRC = f"{DIRECTORY}/npmrc"
CARGO_CONFIG = "/.cargo/config.toml"
"""cargo looks in the directory it is started in and all above it, and then in its home."""
MAVEN_SETTINGS = "/etc/maven/settings.xml"
APT_AUTH = "/etc/apt/auth.conf.d/agentkernel.conf"
APT_CONF = "/etc/apt/apt.conf.d/99agentkernel"

COMMON_KEYS = ("/usr/share/keyrings/debian-archive-", "/usr/share/keyrings/ubuntu-archive-")
_URI_HOST = re.compile(r"\bhttps?://(?:[^/\s@]{0,200}@)?([^/\s:]{1,253})", re.IGNORECASE)
_SIGNED_BY = re.compile(r"signed-by\s*[:=]\s*(/[^\s\],]+)", re.IGNORECASE)

HEAD = "Written by agentkernel from the configuration of the machine outside."


class Told:
    """Files by path and variables by name, as they are collected."""

    def __init__(self, machine: Machine, placeholder: Placeholder) -> None:
        self.machine = machine
        self.files: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self._placeholder = placeholder
        self._made: dict[str, str | None] = {}

    def stand_in(self, credential: Credential | None) -> str | None:
        if credential is None:
            return None
        if credential.reference not in self._made:
            made = self._placeholder(credential.reference, credential.value)
            self._made[credential.reference] = made
        return self._made[credential.reference]

    def pair(self, registry: Registry) -> tuple[str, str] | None:
        """A user's name and password to send, one of them a placeholder."""
        text = self.stand_in(registry.credential)
        if text is None or registry.credential is None or registry.credential.kind != "basic":
            return None
        if registry.credential.username:
            return registry.credential.username, text
        return text, registry.credential.password

    def address(self, registry: Registry) -> str:
        """The registry's address, with the pair in it if there is one."""
        pair = self.pair(registry)
        if pair is None:
            return registry.url
        name, password = (quote(part, safe="") for part in pair)
        return registry.url.replace("://", f"://{name}:{password}@", 1)

    def add_all(
        self, distribution: str | None, image_sources: Mapping[str, str] | None = None
    ) -> None:
        """`distribution` is that of an image that is not the machine's own, `image_sources` are its
        apt's files."""
        self.pip()
        self.npm()
        self.apt(distribution, image_sources or {})
        self.cargo()
        self.go()
        self.maven()
        self.gems()

    def pip(self) -> None:
        indexes, extra, links = (self._of_pip(role) for role in ("index", "extra", "links"))
        lines = [f"index-url = {address}" for address in indexes[:1]]
        for key, values in (
            ("extra-index-url", extra),
            ("find-links", links),
            ("trusted-host", self.machine.settings.get("pip", {}).get("trusted-host", "").split()),
        ):
            if values:
                lines += [f"{key} =", *(f"    {value}" for value in values)]
        if lines:
            self.files["/etc/pip.conf"] = "\n".join([f"# {HEAD}", "[global]", *lines, ""])
        uv = [_toml_table("[index]", url=address) for address in self._of_uv("extra")]
        uv += [
            _toml_table("[index]", url=address) + "default = true\n"
            for address in self._of_uv("index")[:1]
        ]
        if self._of_uv("links"):
            uv.insert(0, f"find-links = {json.dumps(self._of_uv('links'))}\n")
        if uv:
            self.files["/etc/uv/uv.toml"] = "\n".join([f"# {HEAD}", *uv])

    def _of_pip(self, role: str) -> list[str]:
        own = self.machine.of("pip", role) or self.machine.of("pip", f"uv-{role}")
        return [self.address(item) for item in own]

    def _of_uv(self, role: str) -> list[str]:
        own = self.machine.of("pip", f"uv-{role}") or self.machine.of("pip", role)
        return [self.address(item) for item in own]

    def npm(self) -> None:
        lines = []
        for item in self.machine.of("npm"):
            key = f"{item.name}:registry" if item.name else "registry"
            lines.append(f"{key}={item.url}")
            place = item.url.partition(":")[2].rstrip("/") + "/"
            pair = self.pair(item)
            text = self.stand_in(item.credential)
            if pair is not None:
                lines.append(f"{place}:_auth={base64.b64encode(':'.join(pair).encode()).decode()}")
            elif text is not None:
                lines.append(f"{place}:_authToken={text}")
            if not item.name:
                self.environment["YARN_NPM_REGISTRY_SERVER"] = item.url.rstrip("/")
                self.environment["COREPACK_NPM_REGISTRY"] = item.url.rstrip("/")
        if lines:
            self.files[NPMRC] = "\n".join([f"; {HEAD}", *dict.fromkeys(lines), ""])
            # npm's global file is beside its node, wherever that is: this says it is here.
            self.environment["NPM_CONFIG_GLOBALCONFIG"] = NPMRC

    def apt(self, distribution: str | None, image_sources: Mapping[str, str]) -> None:
        # apt knows no variable for certificates.
        lines = [f'Acquire::https::CAInfo "{BUNDLE}";']
        settings = self.machine.settings.get("apt", {})
        if distribution is None or (distribution and distribution == self.machine.distribution):
            given = {
                path: text
                for path, text in settings.items()
                if path.startswith("/") and (distribution is None or _has_common_keys(text))
            }
            if given:
                given = {**self._replaced(image_sources), **given}
            self.files |= given
            if settings.get("Check-Valid-Until") == "false":
                lines.append('Acquire::Check-Valid-Until "false";')
            self._apt_passwords()
        self.files[APT_CONF] = "\n".join([f"// {HEAD}", *lines, ""])

    def _replaced(self, image_sources: Mapping[str, str]) -> dict[str, str]:
        """Files that name nothing but the distribution's public archives, where this machine has
        its own way to them: those can't be reached, and one such is enough to fail an update."""
        reached = {item.host for item in self.machine.registries if item.ecosystem == "apt"}
        replaced = {}
        for path, text in image_sources.items():
            lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
            hosts = {host.lower() for host in _URI_HOST.findall("\n".join(lines))}
            if hosts and hosts <= set(APT) and hosts - reached:
                replaced[path] = f"# {HEAD}\n# What the image had here: see the other sources.\n"
        return replaced

    def _apt_passwords(self) -> None:
        lines = []
        for item in self.machine.of("apt"):
            pair = self.pair(item)
            if pair is not None and all(len(part.split()) == 1 for part in pair):
                place = item.url.partition("://")[2]  # without a scheme: https only
                lines.append(f"machine {place} login {pair[0]} password {pair[1]}")
        if lines:
            self.files[APT_AUTH] = "\n".join([f"# {HEAD}", *dict.fromkeys(lines), ""])

    def cargo(self) -> None:
        tables = []
        for item in self.machine.of("cargo"):
            name = item.name or "mirror"
            if item.role == "index":
                tables.append(_toml_table("source.crates-io", **{"replace-with": name}))
                tables.append(_toml_table(f"source.{name}", registry=self.address(item)))
            text = self.stand_in(item.credential)
            token = text is not None and self.pair(item) is None
            if item.role == "registry":
                tables.append(_toml_table(f"registries.{name}", index=self.address(item)))
            if token and text is not None:
                variable = name.upper().replace("-", "_")
                self.environment[f"CARGO_REGISTRIES_{variable}_TOKEN"] = text
                # Without a provider that is named cargo refuses registries which want a token.
                providers = '[registry]\nglobal-credential-providers = ["cargo:token"]\n'
                tables = [*(table for table in tables if table != providers), providers]
        if tables:
            self.files[CARGO_CONFIG] = "\n".join([f"# {HEAD}", *tables])

    def go(self) -> None:
        settings = dict(self.machine.settings.get("go", {}))
        addresses = {item.url: self.address(item) for item in self.machine.of("go", "index")}
        if "GOPROXY" in settings:
            settings["GOPROXY"] = "".join(
                addresses.get(text, text) + separator
                for text, separator in split_proxies(settings["GOPROXY"])
            )
        self.environment |= settings

    def maven(self) -> None:
        named = self.machine.of("maven")
        if not named:
            return
        mirror_of = self.machine.settings.get("maven", {})
        mirrors = [
            _element("mirror", id=item.name, mirrorOf=mirror_of.get(item.name, ""), url=item.url)
            for item in named
            if item.role == "mirror"
        ]
        # What Maven's own file has: repositories in plain text that a project brings lead nowhere.
        mirrors.append(
            _element(
                "mirror",
                id="maven-default-http-blocker",
                mirrorOf="external:http:*",
                url="http://0.0.0.0/",
                blocked="true",
            )
        )
        servers = []
        for item in named:
            pair = self.pair(item)
            if pair is not None:
                servers.append(_element("server", id=item.name, username=pair[0], password=pair[1]))
        repositories = [item for item in named if item.role == "repository"]
        self.files[MAVEN_SETTINGS] = "".join(
            [
                f"<!-- {HEAD} -->\n<settings>\n",
                _group("servers", servers),
                _group("mirrors", mirrors),
                _profile(repositories),
                "</settings>\n",
            ]
        )
        # Debian's Maven reads that file anyhow; others, from 3.9 on, because of this.
        self.environment["MAVEN_ARGS"] = f"-gs {MAVEN_SETTINGS}"

    def gems(self) -> None:
        sources = [self.address(item) for item in self.machine.of("gems", "index")]
        if sources:
            listed = [f"- {json.dumps(source)}" for source in sources]
            self.files["/etc/gemrc"] = "\n".join([f"# {HEAD}", ":sources:", *listed, ""])
        for item in self.machine.of("gems", "mirror")[:1]:
            self.environment["BUNDLE_MIRROR__ALL"] = self.address(item)


def _has_common_keys(sources: str) -> bool:
    """Whether an image of the same system has the keys: one without them can't be updated."""
    return all(path.startswith(COMMON_KEYS) for path in _SIGNED_BY.findall(sources))


def _toml_table(name: str, **values: str) -> str:
    # A JSON string without escapes beyond \" and \\ is a TOML string; addresses are ASCII.
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
    return f"[{name}]\n" + "".join(lines)


def _element(kind: str, **values: str) -> str:
    inner = "".join(f"<{key}>{_escaped(value)}</{key}>" for key, value in values.items())
    return f"    <{kind}>{inner}</{kind}>\n"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _group(name: str, items: list[str]) -> str:
    return f"  <{name}>\n{''.join(items)}  </{name}>\n" if items else ""


def _profile(repositories: list[Registry]) -> str:
    if not repositories:
        return ""
    listed = "".join(
        f"<{kind}><id>{_escaped(item.name)}</id><url>{_escaped(item.url)}</url></{kind}>"
        for kind in ("repository",)
        for item in repositories
    )
    plugins = listed.replace("repository>", "pluginRepository>")
    return (
        "  <profiles>\n    <profile><id>machine</id>\n"
        f"      <repositories>{listed}</repositories>\n"
        f"      <pluginRepositories>{plugins}</pluginRepositories>\n"
        "    </profile>\n  </profiles>\n"
        "  <activeProfiles><activeProfile>machine</activeProfile></activeProfiles>\n"
    )
