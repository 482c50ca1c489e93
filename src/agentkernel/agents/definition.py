"""What is known of one agent, as its file says: how it is installed, started, paid and told things.

Texts may have fields in braces, which are filled in by `agents.commands`:

{kit}        where its kit is mounted, read-only (while it is installed: where it is made)
{version}    the pinned version
{home}       the home directory inside; a path may also begin with ~/
{workspace}  where the project is inside
{task}       what it is to do; {task_file}: a file inside that has it
{model}      the model that was asked for
{session}    the id of the conversation to go on with, as the agent itself calls it
{context}    the file that tells the agent where it is, if `context` names none
{mcp}        the file of `mcp.file`
{secret:V}   the placeholder in the variable V, empty if no secret is bound to it; with :last20
             after it its last 20 letters
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(max_length=4096)]
Words = Annotated[list[Text], Meta(max_length=64)]
EventFormat = Literal["text", "claude", "codex", "gemini", "opencode", "aider"]
McpFormat = Literal["none", "claude", "codex", "gemini", "opencode"]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Install(_Part, frozen=True, kw_only=True):
    """How its kit is made: once, in a sandbox that reaches package registries and nothing else.

    `needs`: commands that the machine must have for it, such as npm, with what to install said by
    `needs_hint`. `steps`: commands, in order, with {kit} as an empty writable directory. `path`:
    directories of the kit that stand first in PATH. `check`: a command that succeeds if it works.
    `node`: a version of Node.js that is put to {kit}/node before the steps, in whose PATH its node
    and npm stand first, and goes when they are done, or stays with `keep_node`. `hosts`: what the
    steps reach beside the registries.
    """

    needs: Words = []
    needs_hint: Text = ""
    steps: Annotated[list[Words], Meta(max_length=32)] = []
    environment: dict[str, Text] = {}
    path: Words = []
    check: Words = []
    node: Annotated[str, Meta(pattern=r"\A[0-9.]{0,20}\Z")] = ""
    keep_node: bool = False
    hosts: Words = []


class Commands(_Part, frozen=True, kw_only=True):
    """Its command lines. Empty: it can't do that.

    `headless` does a task and ends. It has it as {task}, or in {task_file}; if neither is among its
    words, on stdin. `resume_…` go on with a conversation: with {session} if that field is in them,
    else the last one. `acp`: speaks the Agent Client Protocol on stdio. `model`: what is added when
    a model is asked for. `unattended`: what makes it ask for no permission, which is what the
    sandbox is for. Where added words go: in place of a word "{unattended}", "{model_words}",
    "{context_words}", "{mcp_words}" or "{words}" (the user's own), else before the word "--", else
    at the end; with `acp` the user's own alone, if the others have no place.
    """

    interactive: Words = []
    headless: Words = []
    resume_interactive: Words = []
    resume_headless: Words = []
    acp: Words = []
    model: Words = []
    unattended: Words = []


class Key(_Part, frozen=True, kw_only=True):
    """An API key that the gateway puts in: `secret` is its name in the store of secrets, `binding`
    where it goes (as in `--secret NAME@…`, without the name; empty: the preset of that name)."""

    secret: Annotated[str, Meta(min_length=1, max_length=64)]
    binding: Text = ""
    about: Text = ""


class OAuth(_Part, frozen=True, kw_only=True):
    """A login of a subscription, which the agent keeps in a file.

    On the host the login is kept as secrets; inside, `file` has placeholders and a far expiry, and
    the host refreshes. Fields are paths into the JSON file, as in "tokens.access_token".
    `hosts`: where the access token goes, in the header Authorization. `refresh`: how the request
    for a new one looks; `client_secret` is that of an installed program, which everybody has.
    `expires`: `unit` since 1970; empty: the token says it itself (a JWT).
    `fixed`: fields of the file inside that are always so. `keep`: fields that are copied as they
    are, since they are no secret. `jwt_claims`: of a field that must be a JWT, what of its claims
    is kept in an unsigned one; a claim within a claim is "OUTER#INNER". `label`: whose login it is,
    for people: the first of these fields that there is, or claims, as "tokens.id_token#email".
    `leaks`: what can't be kept outside, in words for people; empty: nothing enters.
    """

    file: Text
    access: Text
    refresh_token: Text = ""
    expires: Text = ""
    unit: Literal["seconds", "milliseconds", "iso", ""] = ""
    hosts: Words
    token_url: Text = ""
    client_id: Text = ""
    client_secret: Text = ""
    body: Literal["json", "form"] = "json"
    scope: Text = ""
    keep: Words = []
    fixed: dict[str, str | int | float | bool | None] = {}
    jwt_claims: dict[str, list[str]] = {}
    label: Words = []
    leaks: Text = ""
    about: Text = ""


class Login(_Part, frozen=True, kw_only=True):
    """`keys`: in the order of preference; the first of which there is a secret is used, or all of
    them with `all_keys`, for an agent that has models of several providers. `oauth`: a
    subscription. `command`: the agent's own login, in a sandbox that is made for it alone, with
    `hosts` in reach; afterwards the file of `oauth` is taken out of it. `hint`: what to do there,
    if that is not plain. `ports` are published, the same outside as inside, since the provider
    sends the browser there."""

    keys: Annotated[list[Key], Meta(max_length=16)] = []
    all_keys: bool = False
    oauth: OAuth | None = None
    command: Words = []
    hint: Text = ""
    hosts: Words = []
    ports: Annotated[list[int], Meta(max_length=8)] = []
    about: Text = ""


class Network(_Part, frozen=True, kw_only=True):
    """`presets`, `allow` and the hosts that its login's secret goes to: all that it reaches
    (`agents.reach`). `setup`: presets of the phase "setup"."""

    presets: Words = []
    allow: Words = []
    setup: Words = msgspec.field(default_factory=lambda: ["registries"])


class State(_Part, frozen=True, kw_only=True):
    """`keep`: files and directories of its conversations and settings, which `--continue` has again
    in another sandbox. Nothing of a login may be among them."""

    keep: Words = []
    exclude: Words = []


class Mcp(_Part, frozen=True, kw_only=True):
    """Where it reads which MCP servers it has: `format` says how `file` is written. `words`: what
    is added to its command lines. A file of the project's own is `project`, which is used only
    if the user trusts it; `ignore_project`: words that make it be ignored else."""

    format: McpFormat = "none"
    file: Text = ""
    words: Words = []
    project: Text = ""
    ignore_project: Words = []


class File(_Part, frozen=True, kw_only=True):
    """Written into a new sandbox before the agent starts. In one whose name ends in .json, .toml or
    .yaml, fields stand within double quotes, and what they stand for is escaped. `secret`: it is
    written only if a secret is bound to this variable."""

    path: Text
    secret: Text = ""
    content: Annotated[str, Meta(max_length=65536)]


class AgentDefinition(_Part, frozen=True, kw_only=True):
    """One agent. `home`: its web page. `context`: the file that it reads as instructions of the
    user, to which we write what it may reach; empty: `context_words` name a file that we wrote at
    {context}. `events`: how what it prints in headless mode is read. `tested`: false if nobody of
    this project has run it, so that it is made of its documentation alone. `notes`: what people
    should know."""

    name: Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,31}\Z")]
    title: Text
    home: Text = ""
    version: Annotated[str, Meta(min_length=1, max_length=64)]
    install: Install = Install()
    command: Commands
    environment: dict[str, Text] = {}
    login: Login = Login()
    network: Network = Network()
    state: State = State()
    context: Text = ""
    context_words: Words = []
    mcp: Mcp = Mcp()
    events: EventFormat = "text"
    files: Annotated[list[File], Meta(max_length=16)] = []
    memory: Text = ""
    timeout: Text = ""
    tested: bool = False
    notes: Text = ""
