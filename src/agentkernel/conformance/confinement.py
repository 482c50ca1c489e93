"""What a guest must not have: rights, network, the machine's secrets."""

from __future__ import annotations

import os

from agentkernel.conformance.bench import Bench, expect, says, sh, within
from agentkernel.guest.processes import Outcome
from agentkernel.kernel.commands import run_command
from agentkernel.kernel.probe.running import probe_sandbox
from agentkernel.network.policy.model import NetworkSetup
from agentkernel.security.capabilities import to_mask
from agentkernel.security.profiles import SECURITY_PROFILES

_FAMILIES = (
    "import socket\n"
    "for f in (1, 2, 10, 16, 17, 40, 44):\n"
    "    try:\n"
    "        socket.socket(f, socket.SOCK_RAW if f in (16, 17) else socket.SOCK_STREAM).close()\n"
    "        print(f)\n"
    "    except OSError: pass\n"
)
_DIAL = (
    "import socket, sys\n"
    "s = socket.socket(); s.settimeout(5)\n"
    "try: s.connect(('192.0.2.1', 80)); print('connected')\n"
    "except OSError as e: print(type(e).__name__)\n"
)


async def each_profile_has_its_rights(bench: Bench) -> None:
    """capabilities of root as the profile says; no_new_privs and a filter in each"""
    for profile in SECURITY_PROFILES.values():
        async with bench.sandbox(profile=profile.name) as sandbox:
            script = "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status"
            words = dict(line.split(":\t") for line in (await says(sandbox, script)).splitlines())
            mask = f"{to_mask(profile.capabilities):016x}"
            wanted = {"CapEff": mask, "CapBnd": mask, "NoNewPrivs": "1", "Seccomp": "2"}
            expect(words == wanted, f"{profile.name}: {words}, wanted {wanted}")


async def there_is_no_network(bench: Bench) -> None:
    """loopback is the only interface, nothing outside answers, odd socket families are closed"""
    async with bench.sandbox() as sandbox:
        interfaces = "import socket; print(*(n for _, n in socket.if_nameindex()))"
        names = await within(run_command(sandbox, ["python3", "-c", interfaces]))
        expect(names.stdout.split() in ([b"lo"], []), names)
        dialled = await within(run_command(sandbox, ["python3", "-c", _DIAL]))
        expect(dialled.stdout.strip() != b"connected", dialled)
        found = await within(run_command(sandbox, ["python3", "-c", _FAMILIES]))
        expect(set(found.stdout.split()) <= {b"1", b"2", b"10", b"16"}, found)


async def user_namespaces_are_closed(bench: Bench) -> None:
    """a guest makes no user namespace, mounts nothing and loads nothing"""
    async with bench.sandbox(profile="permissive") as sandbox:
        for script in (
            "unshare -U true",
            "mount -t tmpfs x /mnt",
            "mknod /root/sda b 8 0 && cat /root/sda",
        ):
            result = await sh(sandbox, script)
            expect(result.status.exit_code, f"`{script}` succeeded")


async def the_guest_sees_only_itself(bench: Bench) -> None:
    """processes, host name, mounts and environment tell nothing of the machine"""
    async with bench.sandbox() as sandbox:
        expect((await says(sandbox, "hostname")).strip() == "sandbox", "host name")
        mounts = await says(sandbox, "cat /proc/self/mountinfo")
        for secret in (str(bench.state_dir), os.environ.get("AGENTKERNEL_AGENTD", "/_agentd/")):
            expect(secret not in mounts, f"{secret} stands in mountinfo")
        commands = await says(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        for word in ("--root", "runsc", "runc", str(os.getpid())):
            expect(word not in commands.split(), commands)
        names = set((await says(sandbox, "cat /proc/[0-9]*/comm 2>/dev/null || true")).split())
        expect(names <= {"agentd", "supervisor", "sh", "cat"}, f"processes: {names}")


async def agentd_is_out_of_reach(bench: Bench) -> None:
    """guest root can't trace or read PID 1, nor end it by a signal where the engine says so"""
    async with bench.sandbox(profile="permissive") as sandbox:
        for script in (
            "cat /proc/1/mem",
            "cat /proc/1/environ",
            "ls -l /proc/1/exe | grep -q agentd",
        ):
            result = await sh(sandbox, f"{script} > /dev/null")
            expect(result.status.exit_code, f"`{script}` succeeded")
        if bench.backend().features.pid1_guarded:
            await sh(sandbox, "kill -9 1; kill -TERM 1; kill -SEGV 1; kill -STOP 1")
            expect((await says(sandbox, "echo alive")).strip() == "alive", "it is gone")
        else:
            result = await sh(sandbox, "kill -9 1; sleep 1000")
            expect(result.status.outcome is Outcome.LOST, f"not guarded, but {result.status}")


async def the_root_is_its_own(bench: Bench) -> None:
    """what one sandbox writes, deletes or replaces no other sees, nor the machine"""
    async with bench.sandbox() as one, bench.sandbox() as other:
        await says(
            one, "echo mine > /etc/conformance; echo mine > /usr/bin/conformance; rm /usr/bin/yes"
        )
        seen = await sh(other, "ls /etc/conformance /usr/bin/conformance; ls /usr/bin/yes")
        expect(seen.stdout == b"/usr/bin/yes\n", seen)
        expect("conformance" not in os.listdir("/usr/bin"), "it came to the machine")
        gone = await sh(one, "test ! -e /usr/bin/yes && cat /etc/conformance")
        expect(gone.stdout == b"mine\n", gone)


async def a_probe_finds_nothing(bench: Bench) -> None:
    """all that `doctor --probe` tries is closed, or open for a reason that holds on this engine"""
    for network in (None, NetworkSetup()):
        async with bench.sandbox(network=network) as sandbox:
            result = await probe_sandbox(sandbox)
        wrong = [f"{f.name} {f.detail}".strip() for f in result.findings if not f.expected]
        expect(result.fit, f"network {bool(network)}: open or unknown: {', '.join(wrong)}")


CASES = (
    each_profile_has_its_rights,
    there_is_no_network,
    user_namespaces_are_closed,
    the_guest_sees_only_itself,
    agentd_is_out_of_reach,
    the_root_is_its_own,
    a_probe_finds_nothing,
)
