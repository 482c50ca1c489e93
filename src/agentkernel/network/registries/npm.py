"""npm's configuration, which pnpm and yarn read too: the registry, those of scopes, tokens."""

from __future__ import annotations

import base64
import binascii
import json
import re

from agentkernel.network.registries.addresses import Address, UnusableAddress, parse
from agentkernel.network.registries.credentials import basic, bearer
from agentkernel.network.registries.known import NPM, defaults, with_company
from agentkernel.network.registries.model import Credential, Registry
from agentkernel.network.registries.places import Places

PREFIX = "npm_config_"
MAX_PATH_ENTRIES = 64
MAX_SCOPES = 64
_VARIABLE = re.compile(r"\$\{([^${}]{1,128})\}")
_SCOPE = re.compile(r"@[a-z0-9._~-]{1,100}\Z", re.IGNORECASE)

Said = dict[str, tuple[str, str]]
"""By key: its value, and the file or variable it comes from."""


def read_npm(places: Places) -> list[Registry]:
    said: Said = {}
    for path in _files(places):
        said.update({key: (value, path) for key, value in npmrc(places.text(path), places).items()})
    said.update(_variables(places))
    registries = []
    for key, (value, source) in said.items():
        scope, _, what = key.rpartition(":")
        if what != "registry" or (scope and not _SCOPE.match(scope)) or not value:
            continue
        try:
            address = parse(value)
        except UnusableAddress as error:
            places.note(f"An address in {source} (npm) {error}: it is left out.")
            continue
        registries.append(
            Registry(
                ecosystem="npm",
                url=address.url,
                host=address.host,
                port=address.port,
                source=source,
                role="scope" if scope else "index",
                name=scope,
                credential=_credential(places, said, address, source),
            )
        )
    registries = registries[:MAX_SCOPES]
    if not said.get("registry", ("", ""))[0]:
        registries = defaults("npm", NPM) + registries
    return with_company("npm", NPM, registries)


def _files(places: Places) -> list[str]:
    """From what counts least to what counts most."""
    named = places.variable("npm_config_globalconfig") or places.variable("NPM_CONFIG_GLOBALCONFIG")
    shared = ["/etc/npmrc", "/usr/local/etc/npmrc", "/usr/etc/npmrc"]
    for entry in places.variable("PATH").split(":")[:MAX_PATH_ENTRIES]:
        # npm's prefix is where its node is.
        if entry.startswith("/") and entry.endswith("/bin") and places.exists(f"{entry}/node"):
            shared = [*shared, f"{entry.removesuffix('/bin')}/etc/npmrc"]
            break
    user = places.variable("npm_config_userconfig") or places.variable("NPM_CONFIG_USERCONFIG")
    return [
        *([named] if named else shared),
        f"{places.config}/pnpm/rc",
        user or f"{places.home}/.npmrc",
    ]


def npmrc(text: str, places: Places) -> dict[str, str]:
    """Keys and values outside of sections, variables put in."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("["):
            break
        key, equals, value = bare.partition("=")
        if not equals or bare.startswith(("#", ";")):
            continue
        found[_expand(_unquoted(key), places)] = _expand(_unquoted(value), places)
    return found


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        if text[0] == '"':
            try:
                inner = json.loads(text)
            except (ValueError, RecursionError):
                return text[1:-1]
            return inner if isinstance(inner, str) else text[1:-1]
        return text[1:-1]
    return text


def _expand(text: str, places: Places) -> str:
    def value(match: re.Match[str]) -> str:
        if match.string[match.start() - 1 : match.start()] == "\\":
            return match[0]
        name, _, default = match[1].partition(":-")
        return places.mentioned(name.removesuffix("?")) or default

    return _VARIABLE.sub(value, text) if "${" in text else text


def _variables(places: Places) -> Said:
    found: Said = {}
    for name, value in places.environment.items():
        if name.lower().startswith(PREFIX) and value:
            key = name[len(PREFIX) :]
            if not key.startswith(("//", "@")):
                key = key.lower().replace("_", "-")
            found[key] = (value.strip(), name)
    return found


def _credential(places: Places, said: Said, address: Address, source: str) -> Credential | None:
    """npm looks for `//host/path/:_authToken` from the registry's own path upwards."""
    path = address.path if address.path.endswith("/") else address.path + "/"
    while True:
        for form in (path, path.removesuffix("/")):
            found = _credential_at(places, said, address, f"//{address.authority}{form}:")
            if found is not None:
                return found
        if path in ("", "/"):
            break
        path = path.rstrip("/").rpartition("/")[0] + "/"
    return basic(places, "npm", address, address.username, address.password, source)


def _credential_at(places: Places, said: Said, address: Address, nerf: str) -> Credential | None:
    if nerf + "_authToken" in said:
        token, source = said[nerf + "_authToken"]
        return bearer(places, "npm", address, token, source)
    if nerf + "_auth" in said:
        pair, source = said[nerf + "_auth"]
        name, colon, password = _decoded(pair).partition(":")
        if colon:
            return basic(places, "npm", address, name, password, source)
        places.note(f"_auth for {address.host} in {source} is not name:password: it is not used.")
    if nerf + "_password" in said and nerf + "username" in said:
        password, source = said[nerf + "_password"]
        return basic(places, "npm", address, said[nerf + "username"][0], _decoded(password), source)
    return None


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=False).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
