"""How well-known services take their secrets: data. What is stored of a sandbox is what a preset
says now, so that a later version of it gives no secret to another host.
"""

from __future__ import annotations

from typing import Final, NamedTuple

AUTHORIZATION: Final = ("authorization",)


class SecretPreset(NamedTuple):
    """`env`: the variables that programs look at; the first is the one that names the secret, too.
    `git`: git inside sends it to these hosts."""

    about: str
    hosts: tuple[str, ...]
    env: tuple[str, ...]
    headers: tuple[str, ...] = AUTHORIZATION
    query: bool = False
    git: bool = False


SECRET_PRESETS: Final[dict[str, SecretPreset]] = {
    "git": SecretPreset(
        "git over HTTPS at the large hosts",
        ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org"),
        ("GIT_TOKEN",),
        git=True,
    ),
    "github": SecretPreset(
        "GitHub: its API, and git over HTTPS",
        ("github.com", "api.github.com", "uploads.github.com", "raw.githubusercontent.com"),
        ("GITHUB_TOKEN", "GH_TOKEN"),
        git=True,
    ),
    "gitlab": SecretPreset(
        "GitLab: its API, and git over HTTPS",
        ("gitlab.com",),
        ("GITLAB_TOKEN",),
        (*AUTHORIZATION, "private-token"),
        git=True,
    ),
    "npm": SecretPreset(
        "npm's registry", ("registry.npmjs.org",), ("NPM_TOKEN", "NODE_AUTH_TOKEN")
    ),
    "pypi": SecretPreset(
        "PyPI: uploads", ("upload.pypi.org", "test.pypi.org"), ("PYPI_TOKEN", "TWINE_PASSWORD")
    ),
    "cargo": SecretPreset("crates.io", ("crates.io",), ("CARGO_REGISTRY_TOKEN",)),
    "huggingface": SecretPreset(
        "Hugging Face", ("huggingface.co",), ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
    ),
    "anthropic": SecretPreset(
        "Anthropic's models",
        ("api.anthropic.com",),
        ("ANTHROPIC_API_KEY",),
        ("x-api-key", *AUTHORIZATION),
    ),
    "openai": SecretPreset("OpenAI's models", ("api.openai.com",), ("OPENAI_API_KEY",)),
    "gemini": SecretPreset(
        "Google's models",
        ("generativelanguage.googleapis.com",),
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("x-goog-api-key", *AUTHORIZATION),
        query=True,
    ),
    "openrouter": SecretPreset("OpenRouter", ("openrouter.ai",), ("OPENROUTER_API_KEY",)),
    "mistral": SecretPreset(
        "Mistral's models", ("api.mistral.ai", "codestral.mistral.ai"), ("MISTRAL_API_KEY",)
    ),
    "groq": SecretPreset("Groq", ("api.groq.com",), ("GROQ_API_KEY",)),
    "deepseek": SecretPreset("DeepSeek's models", ("api.deepseek.com",), ("DEEPSEEK_API_KEY",)),
    "xai": SecretPreset("xAI's models", ("api.x.ai",), ("XAI_API_KEY",)),
    "together": SecretPreset("Together", ("api.together.xyz",), ("TOGETHER_API_KEY",)),
    "cohere": SecretPreset("Cohere", ("api.cohere.com",), ("COHERE_API_KEY", "CO_API_KEY")),
    "perplexity": SecretPreset("Perplexity", ("api.perplexity.ai",), ("PERPLEXITY_API_KEY",)),
}


def preset_of_name(name: str) -> SecretPreset | None:
    """The one whose variable a secret is called after: `GITHUB_TOKEN` says where it belongs."""
    return next((each for each in SECRET_PRESETS.values() if name in each.env), None)
