"""Lists of hosts that have a name. They are data: what is stored of a sandbox is their rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.model import Rule

NONE = "none"
REGISTRIES = "registries"
PUBLIC = "public"
ECOSYSTEMS = ("pip", "npm", "cargo", "go", "maven", "apt", "gems")
"""Parts of `registries`, by its rules' sources: "registries: pip (…)", or of a host that several
share "registries: pip (…), npm (…)"."""
_SPLICE = ":splice"
# What the source of a rule says of a registry that nobody on this machine has named.
_DEFAULT = "(its default)"


class Preset(NamedTuple):
    """Hosts on port 443, if it is not one that is made elsewhere."""

    about: str
    hosts: tuple[str, ...] = ()


_READ_HERE = "as this machine's own configuration says; reads only (GET, HEAD), TLS is looked into"
_GIVEN_UP = (
    "the same without looking into TLS, for clients that insist on certificates of their own; it "
    "gives up that only reads pass, so anything can be uploaded, and credentials that stay outside"
)
_GITHUB = (
    "github.com", "api.github.com", "codeload.github.com", "uploads.github.com",
    "*.githubusercontent.com",
)  # fmt: skip

PRESETS: dict[str, Preset] = {
    NONE: Preset("nothing; stands alone"),
    PUBLIC: Preset("every public name and address, every port; nothing private"),
    REGISTRIES: Preset(f"the package registries, {_READ_HERE}"),
    REGISTRIES + _SPLICE: Preset(_GIVEN_UP),
    **{name: Preset(f"the registries of {name}, {_READ_HERE}") for name in ECOSYSTEMS},
    **{name + _SPLICE: Preset(_GIVEN_UP) for name in ECOSYSTEMS},
    "github": Preset("GitHub: git over HTTPS, its API, downloads and uploads", _GITHUB),
    "git": Preset(
        "the large hosts of git over HTTPS",
        (*_GITHUB, "gitlab.com", "bitbucket.org", "codeberg.org"),
    ),
    "claude": Preset(
        "Claude Code: its model and its login",
        ("api.anthropic.com", "claude.ai", "platform.claude.com"),
    ),
    "codex": Preset(
        "Codex: its model and its login", ("api.openai.com", "chatgpt.com", "auth.openai.com")
    ),
    "gemini": Preset(
        "Gemini CLI: its model and its login",
        ("generativelanguage.googleapis.com", "oauth2.googleapis.com",
         "cloudcode-pa.googleapis.com"),
    ),
    "opencode": Preset(
        "OpenCode's list of models; its provider is a preset of its own",
        ("models.opencode.ai", "opencode.ai"),
    ),
    "amp": Preset("Amp", ("ampcode.com",)),
    "cursor": Preset("Cursor's agent", ("cursor.com", "*.cursor.sh")),
    "anthropic": Preset("Anthropic's API", ("api.anthropic.com",)),
    "openai": Preset("OpenAI's API", ("api.openai.com",)),
    "google": Preset("Google's API of models", ("generativelanguage.googleapis.com",)),
    "openrouter": Preset("OpenRouter's API", ("openrouter.ai",)),
    "mistral": Preset("Mistral's API", ("api.mistral.ai",)),
    "groq": Preset("Groq's API", ("api.groq.com",)),
    "deepseek": Preset("DeepSeek's API", ("api.deepseek.com",)),
    "xai": Preset("xAI's API", ("api.x.ai",)),
}  # fmt: skip


def expand_presets(names: Iterable[str], registries: tuple[Rule, ...]) -> list[Rule]:
    """The rules of all of them. Raises InvalidInputError for a name that is not known."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in PRESETS:
            raise InvalidInputError(
                f"{name[:60]!a} is not a preset", hint=f"presets are {', '.join(PRESETS)}"
            )
    if NONE in wanted and len(wanted) > 1:
        raise InvalidInputError(f'"{NONE}" is a preset that stands alone')
    found: list[Rule] = []
    # Last, whatever the order: it decides all that is left, and nothing after it would count.
    for name in sorted(wanted, key=lambda name: name == PUBLIC):
        if name == PUBLIC:
            found += _writes_denied(found)
            found += [_of_preset(name, host) for host in ("*", "0.0.0.0/0", "::/0")]
        elif name.removesuffix(_SPLICE) in (REGISTRIES, *ECOSYSTEMS):
            found += _registries(name, registries)
        else:
            found += [_of_preset(name, host, 443) for host in PRESETS[name].hosts]
    return list(dict.fromkeys(found))


def _of_preset(name: str, host: str, *ports: int) -> Rule:
    return Rule(host=host, ports=ports, source=f"preset {name}")


def _registries(name: str, registries: tuple[Rule, ...]) -> list[Rule]:
    which = name.removesuffix(_SPLICE)
    found = [
        rule
        for rule in registries
        if which == REGISTRIES or re.search(rf"(?:^{REGISTRIES}:|,) {which} \(", rule.source)
    ]
    if name == which:
        return found
    return [
        msgspec.structs.replace(
            rule, methods=(), paths=(), tls="splice",
            # Nobody looks whether the far side is the registry: a private one has to be named.
            private=rule.private and _DEFAULT not in rule.source,
            source=rule.source.replace(REGISTRIES, REGISTRIES + _SPLICE, 1),
        )
        for rule in found
    ]  # fmt: skip


def _writes_denied(rules: list[Rule]) -> list[Rule]:
    """A private mirror may be read because the machine says so. What `public` allows is not meant
    for it: uploads, with this machine's own credentials perhaps."""
    return [
        Rule(action="deny", host=rule.host, ports=rule.ports,
             source=f"{rule.source}: reads only")
        for rule in rules
        if rule.private and rule.action == "allow" and (rule.methods or rule.paths)
        and _DEFAULT not in rule.source
    ]  # fmt: skip
