"""From what was asked for to what a sandbox gets of a network: its setting, and what is inside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from agentkernel.backends.base import Sandbox
from agentkernel.config.finding import user_file
from agentkernel.errors import InvalidInputError, StateError
from agentkernel.guest.files import GuestFiles
from agentkernel.images.view import View
from agentkernel.network.guest_files.page import network_page
from agentkernel.network.guest_files.setup import network_setup
from agentkernel.network.policy.model import (
    MCP_MACHINE,
    NetworkSetting,
    NetworkSetup,
    Operator,
    Rule,
    SecretBinding,
)
from agentkernel.network.policy.operator import operator_setting
from agentkernel.network.policy.request import NetworkRequest, expand_network
from agentkernel.network.registries.apt import DIRECTORY as APT_DIRECTORY
from agentkernel.network.registries.machine import MachineReader, distribution_of
from agentkernel.network.registries.model import Credential, Machine
from agentkernel.network.secrets.placeholders import make_placeholder
from agentkernel.network.secrets.swapping import split_target
from agentkernel.network.starting import package_environment

MACHINE = "machine/"
"""Before the reference of a credential that this machine's own package clients use."""
_MOST_AUTHORITIES = 16 << 20
_MOST_SOURCES = 1 << 16
_MOST_FILES = 64
_AUTHORITY = ("network", "authority", "certificate.pem")


class NetworkMaking:
    """Knows this machine's package registries and the authority of this state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._reader = MachineReader(Path.home())

    def setting(
        self,
        request: NetworkRequest | None,
        profile: str,
        secrets: tuple[SecretBinding, ...] = (),
    ) -> NetworkSetting:
        """With a placeholder for each credential of a registry that it may use. Raises
        InvalidInputError."""
        machine = self._machine()
        setting = _reaching(expand_network(request, profile, machine.rules), request, secrets)
        reached = {
            (rule.host, port)
            for policy in setting.phases.values()
            for rule in policy.rules
            for port in rule.ports
            if rule.action == "allow" and rule.methods
        }
        bound = [
            binding
            for credential in machine.credentials
            if (credential.host, credential.port) in reached
            and (binding := _binding(credential)) is not None
        ]
        return msgspec.structs.replace(setting, secrets=(*secrets, *bound))

    async def setup(self, setting: NetworkSetting, image: View | None, name: str) -> NetworkSetup:
        """`image`: its files, unless it is the machine's own. `name`: what the sandbox is called,
        for the page that its agents may read."""
        told = {bound.reference: bound.placeholder for bound in setting.secrets}
        return network_setup(
            self._machine(),
            await self._authority(),
            distribution=None if image is None else _distribution(image),
            image_sources={} if image is None else _apt_sources(image),
            placeholder=lambda reference, _: told.get(MACHINE + reference),
            page=network_page(setting, name),
        )

    def notes(self) -> list[str]:
        """What of this machine's registries could not be used, in sentences."""
        machine = self._machine()
        short = [
            f"the password for {one.host} ({one.source}) has fewer than 16 characters: sandboxes "
            "reach it without"
            for one in machine.credentials
            if _binding(one) is None
        ]
        return [*machine.notes, *short]

    def operator(self) -> Operator:
        """As the user's config.toml says under [network]. Raises for a file that is wrong."""
        path = user_file()
        if not os.path.lexists(path):
            return Operator()
        from agentkernel.config.reading import read_file

        operator = operator_setting(read_file(path, "user").values, self._machine().rules)
        if operator.upstream_ca is not None:
            try:
                with open(operator.upstream_ca, "rb") as file:
                    holds = b"BEGIN CERTIFICATE" in file.read(_MOST_AUTHORITIES)
            except OSError as exc:
                raise InvalidInputError(
                    f"network.upstream_ca can't be read: {operator.upstream_ca}: {exc.strerror}"
                ) from None
            if not holds:
                raise InvalidInputError(
                    f"network.upstream_ca has no certificate in it: {operator.upstream_ca}"
                )
        return operator

    def values(self, references: Iterable[str]) -> dict[str, bytes]:
        """Those that are this machine's own, as its files have them now."""
        wanted = set(references)
        return {
            MACHINE + credential.reference: credential.value.encode()
            for credential in self._machine().credentials
            if MACHINE + credential.reference in wanted
        }

    async def tell_inside(self, sandbox: Sandbox, files: Mapping[str, str]) -> None:
        """For a sandbox that runs. Variables and trust stores come with its next start."""
        inside = GuestFiles(sandbox.channel, user="root")
        for path, text in files.items():
            await inside.write(path, text.encode(), parents=True, mode=0o644)

    def _machine(self) -> Machine:
        return self._reader.read(os.environ)

    async def _authority(self) -> str:
        """Made by whoever needs it first; later its certificate is a file to read."""
        try:
            return self._state_dir.joinpath(*_AUTHORITY).read_text(encoding="ascii")
        except (FileNotFoundError, ValueError):
            return await _made_authority(self._state_dir)


def has_any(setting: NetworkSetting) -> bool:
    """Whether anything can ever be reached with it, in any phase."""
    return any(policy.rules for policy in setting.phases.values())


def _reaching(
    setting: NetworkSetting, request: NetworkRequest | None, secrets: tuple[SecretBinding, ...]
) -> NetworkSetting:
    """Whoever binds a secret to a host wants it to be reached, unless a rule denies that, or the
    phase is closed altogether."""
    if not secrets:
        return setting
    targets = dict.fromkeys(
        (host, bound.reference)
        for bound in secrets
        for host in bound.hosts
        # Of what is on this machine a rule has to say the path, too.
        if split_target(host)[0] != MCP_MACHINE
    )
    rules = tuple(
        Rule(
            host=split_target(host)[0],
            ports=(split_target(host)[1],),
            source=f"the secret {reference.rpartition('/')[2]}",
        )
        for host, reference in targets
    )
    says_nothing = request is None or (request.presets is None and not request.phases)
    phases = {
        name: msgspec.structs.replace(policy, rules=(*policy.rules, *rules))
        if policy.rules or says_nothing
        else policy
        for name, policy in setting.phases.items()
    }
    return msgspec.structs.replace(setting, phases=phases)


async def _made_authority(state_dir: Path) -> str:
    """By a process of its own, once: the library for certificates would take a third of the
    daemon's memory for ever."""
    maker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "agentkernel.network.intercept.authority", str(state_dir)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env=package_environment(),
    )
    made, words = await maker.communicate()
    if maker.returncode:
        last = words.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise StateError(f"the authority for intercepted hosts can't be made: {last}")
    return made.decode("ascii")


def _binding(credential: Credential) -> SecretBinding | None:
    """None: too short to be told from other words, so it is not given at all."""
    try:
        placeholder = make_placeholder(credential.value)
    except InvalidInputError:
        return None
    return SecretBinding(
        reference=MACHINE + credential.reference,
        env="",
        placeholder=placeholder,
        hosts=(f"{credential.host}:{credential.port}",),
    )


def _distribution(image: View) -> str:
    """Of an image's own system: apt's sources are of one."""
    for place in ("/etc/os-release", "/usr/lib/os-release"):
        if text := image.read(place, _MOST_SOURCES):
            return distribution_of(text.decode("utf-8", "replace"))
    return ""


def _apt_sources(image: View) -> dict[str, str]:
    """What the image's own apt would ask, by file."""
    below = f"{APT_DIRECTORY}/sources.list.d"
    names = [name for name in image.names(below) if name.endswith((".list", ".sources"))]
    paths = [f"{APT_DIRECTORY}/sources.list", *(f"{below}/{name}" for name in names[:_MOST_FILES])]
    texts = {path: image.read(path, _MOST_SOURCES) for path in paths}
    return {path: text.decode("utf-8", "replace") for path, text in texts.items() if text}
