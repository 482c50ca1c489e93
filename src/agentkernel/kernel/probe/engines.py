"""What each engine changes in the judgement of the same tries: one table an engine.

The catalogue says what a try means where the guest's kernel is the machine's. runc and crun make
the same sandbox out of the same parts as our launcher, so nothing is different there. gVisor's
guest speaks to the sentry, a kernel that is a program: much of what it shows is its own and tells
nothing of the machine, and some guards of Linux it does not have. A door that is open for such a
reason is named here one by one; any other is a finding on every engine.
"""

from __future__ import annotations

from typing import Final

from agentkernel.backends.oci.config import SOCKET_DIRECTORY
from agentkernel.backends.oci.gvisor import GvisorBackend
from agentkernel.kernel.probe import identity, surroundings
from agentkernel.kernel.probe.rules import (
    FILE,
    SOCKET,
    Engine,
    Rule,
    by_way_out,
    denied,
    found,
    nothing_but,
)

_OWN: Final = "the sentry's own: no word of it is the machine's"
_MEMORY: Final = (
    "a number that the sentry keeps and does not use: for lack of memory the machine ends the "
    "sandbox as a whole"
)
_DEVICES: Final = "the sentry opens its own devices alone, whatever a node says"
_NO_ADMIN: Final = "the sentry's own device, of no use without {}"

_SENTRY: dict[str, Rule] = {
    # The sentry has one user namespace with every id in it; what its files and processes are on
    # the machine, the namespace around it says.
    "identity.uid_map": identity.outside_ids("uid"),
    "identity.gid_map": identity.outside_ids("gid"),
    "mount.suid": nothing_but(("/",), "the sentry gives such bits no meaning on any mount"),
    "mount.device": found(_DEVICES),
    # The root is the overlays that our launcher made; of the directory of agentd's socket there is
    # nothing left on the machine.
    "mount.writable": surroundings.writable(("/ 9p", f"{SOCKET_DIRECTORY} 9p")),
    "proc.cmdline": denied(FILE, meant=_OWN),
    "proc.sysrq": denied(FILE, meant="an empty file of the sentry's, which takes no word"),
    "proc.sys_writable": found("the sentry's own settings, which count in this sandbox alone"),
    "device.nodes": surroundings.nodes(
        "the sentry's own devices", ("/dev/fuse c 10:229", "/dev/net/tun c 10:200")
    ),
    "device.mknod": denied(cap="CAP_MKNOD"),
    "device.fuse": denied(FILE, cap="CAP_SYS_ADMIN", meant=_NO_ADMIN.format("CAP_SYS_ADMIN")),
    "device.tun": denied(FILE, cap="CAP_NET_ADMIN", meant=_NO_ADMIN.format("CAP_NET_ADMIN")),
    "network.gateway_bind": by_way_out(
        denied(SOCKET, meant="a port of the sentry's own network stack, which has no gateway"),
        denied(SOCKET, also=("EADDRINUSE",)),
    ),
    "network.unix_names": nothing_but(
        (GvisorBackend.listen,), "the name of agentd's own socket, which is not there any more"
    ),
    "agent.signal": denied(
        meant="guest root can end its own sandbox by a signal to PID 1; `info` says so"
    ),
    "agent.oom_score": denied(FILE, meant=_MEMORY),
    "agent.oom_score_of_thread": denied(FILE, meant=_MEMORY),
    "agent.name": denied(FILE, meant="it opens, and the sentry lets nobody else write to it"),
    "limit.oom_hide": denied(FILE, meant=_MEMORY),
    "limit.oom_order": found(_MEMORY),
}

ENGINES: Final = {
    "native": Engine(),
    "runc": Engine(),
    "crun": Engine(),
    "gvisor": Engine(
        rights="in the sentry alone",
        network="in the sentry's own network stack, which has loopback only",
        rules=_SENTRY,
    ),
}
"""By the name of the backend."""
