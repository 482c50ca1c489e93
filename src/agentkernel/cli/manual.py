"""What `--help` says below the arguments: examples, exit status, environment.

By the verb's full name; a test holds that every verb has its entry and that the examples parse.
"""

from __future__ import annotations

import argparse
import textwrap

_COMMAND = """\
the command's own   it exited
128+n               a signal n ended it (137: also when it ran out of memory)
124                 its time was over (--timeout)
125                 agentkernel failed; one line on stderr says why
126, 127            it could not be started; 127: not found"""
_PLAIN = """\
0                   done
2                   wrong arguments
125                 agentkernel failed; one line on stderr says why"""
_MANY = """\
0                   done
125                 it failed for one of them; stderr says which and why"""
_ONE = "1                   "

_STATE = "AGENTKERNEL_STATE_DIR   sandboxes and records (default: ~/.local/state/agentkernel)"
_CONFIG = "XDG_CONFIG_HOME         where agentkernel/config.toml is (default: ~/.config)"
_AGENTD = "AGENTKERNEL_AGENTD      another agentd than the package's own"
_CLIENTS = (
    "CLAUDE_CONFIG_DIR, CODEX_HOME, OPENCODE_CONFIG, XDG_CONFIG_HOME   as the clients use them"
)
_URL = (
    "AGENTKERNEL_URL         a daemon at http://HOST:PORT, https://HOST:PORT or unix:PATH instead\n"
    "AGENTKERNEL_TOKEN       what to show it\n"
    "AGENTKERNEL_CA          a PEM file with the authorities to believe"
)
_COLOUR = "NO_COLOR                set to anything: no colours"

_AGENTS = ("claude", "codex", "gemini", "opencode", "aider")
_AGENT = """\
the agent's own     it exited
128+n               a signal n ended it (137: also when it ran out of memory)
124                 its time was over (--timeout)
125                 agentkernel failed; one line on stderr says why"""

_EXAMPLES: dict[str, str] = {
    "": """\
agentkernel run -- python3 -c 'print(6*7)'
agentkernel sandbox create work
agentkernel exec work -- sh -c 'echo hello > /root/note'
agentkernel sandbox remove work
agentkernel doctor""",
    "run": """\
agentkernel run -- python3 -c 'print(6*7)'
agentkernel run --timeout 5 --memory 512M --pids 64 -- ./untrusted
agentkernel run --profile restrictive --json -- python3 -c 'print(1)'
agentkernel run -e LANG -e MODE=test -- env
agentkernel run -p 8000 -- python3 -m http.server 8000
agentkernel run -c none -- make""",
    "exec": """\
agentkernel exec work -- ls /root
agentkernel exec --timeout 1m --user user work -- make test""",
    "attach": "agentkernel attach 0123456789abcdefghij",
    "sandbox": """\
agentkernel sandbox create work
agentkernel sandbox list""",
    "sandbox create": """\
agentkernel sandbox create work --ttl 8h --label team=web
agentkernel sandbox create --image ./rootfs --memory 1G build
agentkernel sandbox create -c ./agentkernel.toml""",
    "sandbox list": """\
agentkernel sandbox list
agentkernel sandbox list --label team=web --state running --json
agentkernel sandbox list --all""",
    "sandbox info": "agentkernel sandbox info work",
    "sandbox start": "agentkernel sandbox start work build",
    "sandbox stop": "agentkernel sandbox stop --grace 10 work",
    "sandbox remove": "agentkernel sandbox remove --force work build",
    "sandbox extend": "agentkernel sandbox extend work 2h",
    "sandbox update": """\
agentkernel sandbox update --label team=web --remove-label draft work
agentkernel sandbox update --name build --ttl 8h --idle-timeout none work""",
    "sandbox cp": """\
agentkernel sandbox cp ./notes.txt work:/root/notes.txt
agentkernel sandbox cp work:/root/result.json ./result.json""",
    "sandbox logs": "agentkernel sandbox logs --follow work",
    "sandbox gc": "agentkernel sandbox gc --label team=web --older-than 7d --dry-run",
    "job": """\
agentkernel job start work -- python3 -m http.server
agentkernel job list work""",
    "job start": "agentkernel job start --timeout 1h work -- make all",
    "job list": """\
agentkernel job list
agentkernel job list work""",
    "job info": "agentkernel job info --json 0123456789abcdefghij",
    "job logs": "agentkernel job logs --follow 0123456789abcdefghij",
    "job attach": "agentkernel job attach -i 0123456789abcdefghij",
    "job kill": "agentkernel job kill --signal TERM 0123456789abcdefghij",
    "agent": """\
agentkernel agent list
agentkernel agent run claude "make the tests pass"
agentkernel agent sessions""",
    "agent run": """\
agentkernel agent run claude
agentkernel agent run claude "make the tests pass"
agentkernel agent run codex --yes --timeout 30m "update the dependencies" -- --config x=y
agentkernel agent run gemini --json --rm -
agentkernel agent run my-agent --workspace-path /workspace --allow api.example.org""",
    **{
        name: f'''\
agentkernel {name}
agentkernel {name} "make the tests pass"
agentkernel {name} --continue --branch fix "now the other test"'''
        for name in _AGENTS
    },
    "agent list": "agentkernel agent list --json",
    "agent show": "agentkernel agent show claude",
    "agent install": "agentkernel agent install claude codex",
    "agent update": """\
agentkernel agent update
agentkernel agent update claude --version 2.1.40""",
    "agent remove": "agentkernel agent remove codex",
    "agent login": """\
agentkernel agent login codex
agentkernel agent login claude --import
agentkernel agent login claude --api-key
agentkernel agent login aider --from-env --key OPENROUTER_API_KEY""",
    "agent logout": "agentkernel agent logout claude",
    "agent status": """\
agentkernel agent status
agentkernel agent status claude --json
agentkernel agent status codex --refresh""",
    "agent sessions": "agentkernel agent sessions --agent claude --running",
    "agent attach": "agentkernel agent attach 0123456789abcdefghij",
    "agent stop": "agentkernel agent stop 0123456789abcdefghij",
    "agent summary": "agentkernel agent summary --json claude-78igzr",
    "agent forget": "agentkernel agent forget 0123456789abcdefghij",
    "agent diff": "agentkernel agent diff --stat 0123456789abcdefghij",
    "agent apply": """\
agentkernel agent apply 0123456789abcdefghij
agentkernel agent apply 0123456789abcdefghij src/parser.py docs""",
    "acp": """\
agentkernel acp claude
agentkernel acp gemini --memory 4G --allow api.example.org""",
    "replay": """\
agentkernel replay 0123456789abcdefghij
agentkernel replay --speed 4 0123456789abcdefghij
agentkernel replay -o session.cast 0123456789abcdefghij""",
    "image": """\
agentkernel image pull debian:12
agentkernel image list
agentkernel run --image debian:12 -- cat /etc/os-release""",
    "image pull": """\
agentkernel image pull debian:12 ghcr.io/owner/app
agentkernel image pull --json debian:12
agentkernel image pull --platform linux/arm64 debian:12""",
    "image load": """\
agentkernel image load images.tar.gz
agentkernel image load --name app:1 ./layout
agentkernel image load""",
    "image build": """\
agentkernel image build -t app:1 .
agentkernel image build -f docker/Dockerfile --build-arg VERSION=2 --target test -t app:test .
agentkernel image build --network none --no-cache -t app:offline .
agentkernel image build -t tiny -""",
    "image save": """\
agentkernel image save -o images.tar debian:12 app:1
agentkernel image save debian:12""",
    "image import": """\
agentkernel image import ./rootfs debian:mine
agentkernel image import -e LANG=C.UTF-8 --workdir /srv --cmd bash ./rootfs app:1""",
    "image list": "agentkernel image list --json",
    "image inspect": "agentkernel image inspect debian:12",
    "image tag": "agentkernel image tag debian:12 base:1",
    "image remove": """\
agentkernel image remove debian:12
agentkernel image remove --force 0123456789ab""",
    "image prune": """\
agentkernel image prune
agentkernel image prune --all""",
    "volume": """\
agentkernel volume create cache
agentkernel run --volume cache:/root/.cache -- pip download requests""",
    "volume create": """\
agentkernel volume create cache
agentkernel volume create --quota 2G --exclusive database""",
    "volume list": "agentkernel volume list",
    "volume inspect": "agentkernel volume inspect --json cache",
    "volume remove": "agentkernel volume remove cache",
    "volume export": "agentkernel volume export cache cache.tar",
    "volume import": "agentkernel volume import --quota 2G copy cache.tar",
    "system": """\
agentkernel system df
agentkernel system prune""",
    "system df": "agentkernel system df --json",
    "system prune": """\
agentkernel system prune --dry-run
agentkernel system prune --sandboxes --volumes --yes""",
    "network": """\
agentkernel network show work
agentkernel network why work pypi.org""",
    "network show": "agentkernel network show --json work",
    "network log": "agentkernel network log work",
    "network tail": "agentkernel network tail work",
    "network why": """\
agentkernel network why work example.org:443
agentkernel network why --method POST --path /upload work pypi.org""",
    "network allow": """\
agentkernel network allow work api.example.org
agentkernel network allow work localhost:5432 10.0.0.7:8080""",
    "network deny": "agentkernel network deny work '*.example.org'",
    "network phase": "agentkernel network phase work agent",
    "info": """\
agentkernel info
agentkernel info --profile restrictive --json""",
    "template": """\
agentkernel template build shop
agentkernel run --template shop -- curl -s localhost:8000""",
    "template build": """\
agentkernel template build shop
agentkernel template build -f ./agentkernel.toml --no-cache
agentkernel template build tool --source https://example.org/tool.git@v1.2""",
    "template list": "agentkernel template list --json",
    "template show": "agentkernel template show shop",
    "template remove": "agentkernel template remove --force shop tool",
    "detect": """\
agentkernel detect
agentkernel detect --json ./project -- make test
agentkernel detect -- python3 main.py""",
    "setup": """\
agentkernel setup
agentkernel setup --check native""",
    "serve": """\
agentkernel serve
agentkernel serve --listen 127.0.0.1:8700
agentkernel serve --listen 0.0.0.0:8700 --tls-cert cert.pem --allow-host ak.example.org""",
    "secret": """\
agentkernel secret set GITHUB_TOKEN
agentkernel secret list""",
    "secret set": """\
agentkernel secret set ANTHROPIC_API_KEY
agentkernel secret set --json NPM_TOKEN""",
    "secret rotate": "agentkernel secret rotate ANTHROPIC_API_KEY",
    "secret list": "agentkernel secret list --json",
    "secret remove": "agentkernel secret remove NPM_TOKEN",
    "token": """\
agentkernel token create ci
agentkernel token list""",
    "token create": """\
agentkernel token create ci --expires 30d
agentkernel token create viewer --scope read --json""",
    "token list": "agentkernel token list --all",
    "token revoke": "agentkernel token revoke ci",
    "diff": """\
agentkernel diff fix
agentkernel diff --stat fix
agentkernel diff --json fix""",
    "apply": """\
agentkernel apply fix
agentkernel apply fix src/parser.py docs
agentkernel apply --allow-risky fix .github""",
    "discard": "agentkernel discard fix",
    "port": """\
agentkernel port publish work 8000
agentkernel port list work""",
    "port publish": """\
agentkernel port publish work 8000 0:5432
agentkernel port publish work 127.0.0.1:8080:8000
agentkernel port publish --public work preview:3000""",
    "port unpublish": "agentkernel port unpublish work 8000",
    "port list": "agentkernel port list --json work",
    "daemon": "agentkernel daemon status",
    "daemon status": "agentkernel daemon status --json",
    "daemon stop": "agentkernel daemon stop",
    "daemon restart": "agentkernel daemon restart",
    "daemon logs": "agentkernel daemon logs --lines 20",
    "mcp": """\
agentkernel mcp
agentkernel mcp --profile restrictive --memory 1G --timeout 5m --idle-timeout 30m
agentkernel mcp install claude""",
    "mcp install": """\
agentkernel mcp install claude
agentkernel mcp install codex --print
agentkernel mcp install --scope project --args "--memory 1G" opencode""",
    "mcp uninstall": "agentkernel mcp uninstall claude",
    "config": """\
agentkernel config show
agentkernel config set limits.memory 2G""",
    "config show": "agentkernel config show --json",
    "config path": "agentkernel config path",
    "config get": "agentkernel config get limits.memory",
    "config set": """\
agentkernel config set sandbox.profile restrictive
agentkernel config set daemon.max_sandboxes 50""",
    "config unset": "agentkernel config unset limits.memory",
    "config check": "agentkernel config check ./agentkernel.toml",
    "trust": """\
agentkernel trust
agentkernel trust ~/src/project/agentkernel.toml
agentkernel trust --list
agentkernel trust --remove ~/src/project/agentkernel.toml""",
    "doctor": """\
agentkernel doctor --json
agentkernel doctor --probe
agentkernel doctor --probe work""",
    "audit": """\
agentkernel audit --since 2h --sandbox work
agentkernel audit --head
agentkernel audit --verify --against HEAD""",
    "completion": """\
agentkernel completion bash
  # bash: in ~/.bashrc          source <(agentkernel completion bash)
  # zsh:  in ~/.zshrc           source <(agentkernel completion zsh)
  # fish: once                  agentkernel completion fish > \\
  #                               ~/.config/fish/completions/agentkernel.fish""",
}
_EXITS: dict[str, str] = {
    **dict.fromkeys(("run", "exec", "attach", "job attach"), _COMMAND),
    **dict.fromkeys(("sandbox start", "sandbox stop", "sandbox remove", "sandbox gc"), _MANY),
    "template remove": _MANY,
    **dict.fromkeys(("agent run", "agent attach", *_AGENTS), _AGENT),
    **dict.fromkeys(("agent install", "agent update", "agent remove"), _MANY),
    "agent apply": f"{_ONE}not all is applied\n{_PLAIN}",
    **dict.fromkeys(("port publish", "port unpublish", "image remove"), _MANY),
    **dict.fromkeys(("volume create", "volume remove"), _MANY),
    "system prune": "0                   done\n2                   wrong arguments\n"
    "125                 you said no, or not all could be removed; what is left is told",
    "network why": f"{_ONE}it would be denied\n{_PLAIN}",
    "setup": f"{_ONE}the backend that --check names (else native) does not work\n{_PLAIN}",
    "daemon status": f"{_ONE}it does not run\n{_PLAIN}",
    "config check": f"{_ONE}the project's file widens and is not trusted\n{_PLAIN}",
    "detect": f"{_ONE}nothing tells a runtime\n{_PLAIN}",
    "audit": f"{_ONE}with --verify: the log is not what was written\n{_PLAIN}",
    "doctor": f"{_ONE}something that is needed does not work; --probe: something is open\n{_PLAIN}",
}
_ENVIRONMENT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("run", "sandbox create"), (_STATE, _CONFIG, _AGENTD, _URL)),
    **dict.fromkeys(("agent run", "acp", *_AGENTS), (_STATE, _CONFIG, _AGENTD, _URL)),
    "info": (_STATE, _CONFIG, _AGENTD),
    **dict.fromkeys(("audit", "trust"), (_STATE,)),
    **dict.fromkeys(("serve", "daemon restart", "mcp"), (_STATE, _CONFIG, _AGENTD)),
    **dict.fromkeys(("mcp install", "mcp uninstall"), (_CLIENTS,)),
    **dict.fromkeys(("config show", "config path", "config get", "config check"), (_CONFIG,)),
    **dict.fromkeys(("config set", "config unset"), (_CONFIG,)),
    "setup": (_STATE, _AGENTD),
    "doctor": (_STATE, _CONFIG, _AGENTD, _COLOUR),
    "completion": (),
}


def name_of(parser: argparse.ArgumentParser) -> str:
    return parser.prog.partition(" ")[2]


def epilog_of(parser: argparse.ArgumentParser) -> str:
    name = name_of(parser)
    parts = [("examples", _EXAMPLES.get(name, ""))]
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups or not groups[0].required:
        parts.append(("exit status", _EXITS.get(name, _PLAIN)))
        parts.append(("environment", "\n".join(_ENVIRONMENT.get(name, (_STATE, _URL)))))
    if groups:
        shown = f"{parser.prog} {'COMMAND' if name == '' else 'VERB'} --help"
        parts.append(("more", f"{shown} shows the arguments of each, with examples"))
    return "\n\n".join(f"{title}:\n{textwrap.indent(text, '  ')}" for title, text in parts if text)


def examples_of(parser: argparse.ArgumentParser) -> list[str]:
    text = _EXAMPLES.get(name_of(parser), "")
    return [line for line in text.splitlines() if line.startswith("agentkernel ")]


def wrapped(text: str | None) -> str | None:
    return text and textwrap.fill(text, 78)
