"""Every try of `agentd probe`: its group, what a guest could do if it is open, and its rule.

The C side has the same list (`agentd probe --list`); a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from agentkernel.kernel.probe import identity, surroundings
from agentkernel.kernel.probe.rules import (
    CALL,
    FILE,
    SOCKET,
    Rule,
    by_way_out,
    denied,
    nothing,
    nothing_but,
    only,
)

_DEBUG = ("permissive", "moderate")


class Try(NamedTuple):
    """`opens` completes the sentence "the guest can …"."""

    name: str
    group: str
    opens: str
    rule: Rule


GROUPS: Final = {
    "identity": "who it is",
    "namespace": "namespaces",
    "descriptor": "descriptors",
    "machine": "names of the machine",
    "call": "system calls",
    "mount": "mounts",
    "proc": "/proc",
    "sys": "/sys",
    "device": "devices",
    "socket": "sockets",
    "network": "network",
    "agent": "agentd, PID 1",
    "limit": "limits",
}

_admin = denied(cap="CAP_SYS_ADMIN")
_plain = denied()
# Where none may be made, the filter is not the only one who says so.
_nested = denied(also=("ENOSPC",), nested=True)
# A kernel that does not know the question has no answer to give away.
_question = denied(also=("ENOTTY",))
_file = denied(FILE)
_hidden = nothing()

_IDENTITY: dict[str, tuple[str, Rule]] = {
    "uid_map": ("have user ids of the machine", identity.ids("uid")),
    "gid_map": ("have group ids of the machine", identity.ids("gid")),
    "groups": ("use supplementary groups", identity.groups),
    "effective": ("use capabilities", identity.capabilities),
    "permitted": ("take up capabilities", identity.capabilities),
    "inheritable": ("hand on capabilities", identity.no_capabilities),
    "bounding": ("gain capabilities by a file", identity.capabilities),
    "ambient": ("keep capabilities over an exec", identity.no_capabilities),
    "raise_capability": ("raise CAP_SYS_ADMIN", _admin),
    "no_new_privs": ("gain privileges by an exec", only("1")),
    "seccomp": ("make system calls without a filter", only("2")),
    "become_root": ("become root from another user", _plain),
    "setuid_file": ("become another by a set-user-id file", nothing()),
}
_NAMESPACE: dict[str, tuple[str, Rule]] = {
    **{
        kind: (f"be in the machine's {words} namespace", identity.namespace(kind))
        for kind, words in {
            "user": "user", "mnt": "mount", "pid": "pid", "net": "network", "ipc": "IPC",
            "uts": "UTS", "cgroup": "cgroup", "time": "time",
        }.items()
    },
    "parent": ("get hold of the user namespace above", _question),
    "net_owner": ("get hold of the namespace that owns its network", _question),
    "processes": ("see processes from outside", _hidden),
}  # fmt: skip
_MACHINE: dict[str, tuple[str, Rule]] = {
    "hostname": ("see the machine's host name", identity.host_name),
    "boot_id": ("see the machine's boot id", identity.same(lambda at: at.host.boot_id)),
    "machine_id": ("see the machine's id", identity.same(lambda at: at.host.machine_id)),
    "version": ("see how the kernel was built", identity.same(lambda at: at.host.version)),
}
_CALL: dict[str, tuple[str, Rule]] = {
    "mount": ("mount file systems", _admin),
    "umount2": ("unmount file systems", _admin),
    "pivot_root": ("change the root mount", _admin),
    "chroot": ("change its root directory", denied(cap="CAP_SYS_CHROOT")),
    "fsopen": ("configure file systems", _admin),
    "fspick": ("reconfigure file systems", _admin),
    "open_tree": ("copy mounts", _admin),
    "move_mount": ("move mounts", _admin),
    "mount_setattr": ("change flags of mounts", _admin),
    "listmount": ("list mounts by number", _plain),
    "statmount": ("read where mounts come from", _plain),
    "setns": ("join namespaces", _admin),
    "unshare_user": ("make user namespaces", _nested),
    "unshare_mnt": ("make mount namespaces", _admin),
    "unshare_pid": ("make pid namespaces", _admin),
    "unshare_net": ("make network namespaces", _admin),
    "unshare_ipc": ("make IPC namespaces", _admin),
    "unshare_uts": ("make UTS namespaces", _admin),
    "unshare_cgroup": ("make cgroup namespaces", _admin),
    "unshare_time": ("make time namespaces", _admin),
    "clone_user": ("start processes in user namespaces", _nested),
    "clone3": ("make namespaces out of the filter's sight", _plain),
    "bpf": ("load kernel programs", _plain),
    "perf_event_open": ("watch the kernel's counters", _plain),
    "userfaultfd": ("stall the kernel at a page fault", _plain),
    "io_uring_setup": ("act past the filter by io_uring", _plain),
    "keyctl": ("use keyrings, which belong to users, not to sandboxes", _plain),
    "add_key": ("add keys", _plain),
    "request_key": ("ask for keys", _plain),
    "kexec_load": ("load another kernel", _plain),
    "kexec_file_load": ("load another kernel by file", _plain),
    "init_module": ("load kernel modules", _plain),
    "finit_module": ("load kernel modules by file", _plain),
    "delete_module": ("unload kernel modules", _plain),
    "reboot": ("reboot", _plain),
    "swapon": ("add swap", _plain),
    "swapoff": ("remove swap", _plain),
    "acct": ("switch process accounting", _plain),
    "quotactl": ("ask for disk quotas", _plain),
    "quotactl_fd": ("ask for disk quotas by descriptor", _plain),
    "settimeofday": ("set the clock", _plain),
    "clock_settime": ("set a clock", _plain),
    "adjtimex": ("tune the clock", _plain),
    "clock_adjtime": ("tune a clock", _plain),
    "sethostname": ("change the host name", _admin),
    "setdomainname": ("change the domain name", _admin),
    "iopl": ("use I/O ports", _plain),
    "ioperm": ("use single I/O ports", _plain),
    "modify_ldt": ("reach segment descriptors", denied(seccomp=("permissive",))),
    "syslog": ("ask for the kernel's log", _plain),
    "fanotify_init": ("watch whole file systems", _plain),
    "name_to_handle_at": ("name files by number", _plain),
    "open_by_handle_at": ("open files by number, past mounts", _plain),
    "memfd_secret": ("hold memory that can't be swapped", _plain),
    "lsm_list_modules": ("see how the machine is protected", _plain),
    "process_madvise": ("advise on other processes' memory", _plain),
    "move_pages": ("move memory between nodes", _plain),
    "personality_no_random": ("switch address randomisation off", _plain),
    "personality_read_exec": ("make readable memory executable", _plain),
    "ptrace": ("trace its own processes", denied(seccomp=_DEBUG)),
    "vhangup": ("hang up terminals", _plain),
    "nfsservctl": ("reach an obsolete call", _plain),
    "ustat": ("reach an obsolete call of file systems", _plain),
    "sysfs": ("list file system types by an obsolete call", _plain),
    "lookup_dcookie": ("reach an obsolete call of profilers", _plain),
    "tiocsti": ("type into a terminal", denied(CALL, also=("EIO",))),
    "tiocsetd": ("change a terminal's line discipline", _plain),
    "int80": ("make 32-bit system calls", denied(CALL, also=("SIGSEGV", "SIGILL"))),
    "x32": ("make x32 system calls", _plain),
}
_MOUNT: dict[str, tuple[str, Rule]] = {
    "suid": ("use set-user-id files of a mount", _hidden),
    "device": ("use device nodes of a mount", surroundings.devices),
    "writable": ("write to mounts", surroundings.writable()),
    "host_paths": ("read paths of the machine in its mount table", surroundings.host_paths),
}
_PROC: dict[str, tuple[str, Rule]] = {
    "kcore": ("read the kernel's memory", _file),
    "kallsyms": ("read the kernel's symbols", _file),
    "kmsg": ("read the kernel's log", _file),
    "keys": ("see keys", _file),
    "key_users": ("see who has keys", _file),
    "timer_list": ("see timers of every process", _file),
    "sched_debug": ("see the scheduler's state", _file),
    "config": ("see how the kernel is configured", _file),
    "modules": ("see kernel modules", _file),
    "cmdline": ("see how the kernel was started", _file),
    "iomem": ("see the memory map", _file),
    "interrupts": ("see interrupts", _file),
    "slabinfo": ("see the kernel's allocations", _file),
    "vmallocinfo": ("see the kernel's mappings", _file),
    "diskstats": ("see disks at work", _file),
    "partitions": ("see partitions", _file),
    "swaps": ("see swap", _file),
    "locks": ("see file locks of every process", _file),
    "kpagecount": ("see pages of memory", _file),
    "pressure": ("see the machine's load", _file),
    "acpi": ("see ACPI", _file),
    "bus": ("see the buses", _file),
    "fs": ("see file systems at work", _file),
    "irq": ("see interrupt lines", _file),
    "scsi": ("see SCSI devices", _file),
    "tty_drivers": ("see terminal drivers", _file),
    "sysrq": ("crash or reboot by sysrq", _file),
    "core_pattern": ("choose the machine's core dump handler", _file),
    "modprobe": ("choose the machine's module loader", _file),
    "binfmt": ("register interpreters for the machine", _file),
    "max_user_namespaces": ("allow itself user namespaces", _file),
    "sys_writable": ("write to settings below /proc/sys", _hidden),
}
_SYS: dict[str, tuple[str, Rule]] = {
    "kernel": ("see /sys/kernel", _file),
    "class": ("see devices by class", _file),
    "devices": ("see devices", _file),
    "module": ("see modules and their parameters", _file),
    "firmware": ("see firmware", _file),
    "efivars": ("see EFI variables", _file),
    "debugfs": ("see debugfs", _file),
    "tracefs": ("see tracefs", _file),
    "bpf": ("see pinned kernel programs", _file),
    "power": ("suspend the machine", _file),
    "uevent_helper": ("choose a program that the kernel starts", _file),
    "cgroup_writable": ("change control groups", _hidden),
}
_DEVICE: dict[str, tuple[str, Rule]] = {
    "nodes": ("use device nodes", surroundings.nodes()),
    "mknod": ("make device nodes", _plain),
    **{
        name: (f"open /dev/{path}", _file)
        for name, path in {
            "mem": "mem", "kmem": "kmem", "port": "port", "kmsg": "kmsg", "kvm": "kvm",
            "fuse": "fuse", "tun": "net/tun", "loop_control": "loop-control", "loop0": "loop0",
            "mapper": "mapper/control", "vsock": "vsock", "vhost_vsock": "vhost-vsock",
            "vhost_net": "vhost-net", "uinput": "uinput", "userfaultfd": "userfaultfd",
            "dri": "dri/card0", "sda": "sda", "vda": "vda", "nvme": "nvme0n1",
        }.items()
    },
}  # fmt: skip
FAMILIES: Final = (
    *("unspec", "unix", "inet", "ax25", "ipx", "appletalk", "netrom", "bridge", "atmpvc", "x25"),
    *("inet6", "rose", "decnet", "netbeui", "security", "key", "netlink", "packet", "ash"),
    *("econet", "atmsvc", "rds", "sna", "irda", "pppox", "wanpipe", "llc", "ib", "mpls", "can"),
    *("tipc", "bluetooth", "iucv", "rxrpc", "isdn", "phonet", "ieee802154", "caif", "alg", "nfc"),
    *("vsock", "kcm", "qipcrtr", "smc", "xdp", "mctp"),
)
"""Names of the socket families, each at its number."""
_OWN_NAMESPACE = "in every profile, in the sandbox's own network namespace"
_unreached = by_way_out(
    denied(SOCKET, meant=lambda engine: f"in every profile, {engine.network}"),
    denied(SOCKET, meant=_OWN_NAMESPACE),
)
_MEANT: Final = {
    "unix": _unreached,
    "inet": _unreached,
    "inet6": _unreached,
    "netlink": denied(SOCKET, seccomp=_DEBUG),
}
_SOCKET: dict[str, tuple[str, Rule]] = {
    **{
        name: (f"make sockets of AF_{name.upper()}", _MEANT.get(name, denied(SOCKET)))
        for name in FAMILIES
    },
    "netlink_others": ("speak netlink to more than routes", nothing(SOCKET)),
    "raw": ("make raw sockets", denied(SOCKET, cap="CAP_NET_RAW")),
    "inet_packet": ("make packet sockets by SOCK_PACKET", denied(SOCKET)),
    "sctp": ("speak SCTP", denied(SOCKET)),
    "mptcp": ("speak MPTCP", denied(SOCKET)),
}
# A route is all that these ask for, and with a way out there is one for every address.
_routed = by_way_out(
    denied(SOCKET),
    denied(SOCKET, meant="it leads to the gateway, which decides by the sandbox's policy"),
)
_routes = by_way_out(
    _hidden, nothing_but(("lo 00000000",), "one for everything, to loopback and so to the gateway")
)
_NETWORK: dict[str, tuple[str, Rule]] = {
    "interfaces": ("use network interfaces", _hidden),
    "routes": ("see routes", _routes),
    "route_out": ("reach addresses outside", _routed),
    "route_out6": ("reach IPv6 addresses outside", denied(SOCKET)),
    "metadata": ("reach a cloud's metadata service", _routed),
    "datagram_out": ("send datagrams past the gateway", denied(SOCKET)),
    "gateway_dial": ("talk to the gateway behind its rules", denied(SOCKET)),
    "gateway_bind": ("stand in the gateway's place", denied(SOCKET, also=("EADDRINUSE",))),
    "host_tcp": ("connect to the machine's loopback", denied(SOCKET)),
    "host_abstract": ("connect to abstract sockets of the machine", denied(SOCKET)),
    "unix_names": ("see unix sockets from outside", _hidden),
    "configure": ("configure its network", denied(SOCKET, also=("ENOTTY",))),
}
_AGENT: dict[str, tuple[str, Rule]] = {
    "ptrace": ("trace agentd", _plain),
    "read_memory": ("read agentd's memory", _plain),
    "write_memory": ("write agentd's memory", _plain),
    "take_descriptor": ("take agentd's descriptors", _plain),
    "compare": ("compare agentd's descriptors", _plain),
    "signal": (
        "ask whether agentd is there",
        denied(meant="the kernel keeps SIGKILL from PID 1, which blocks all others"),
    ),
    "limits": ("read agentd's resource limits", _plain),
    "affinity": ("bind agentd to a CPU", _plain),
    "priority": ("slow agentd down", _plain),
    "command_line": ("read agentd's command line", surroundings.agent_line),
    "environment": ("read agentd's environment", _file),
    "memory_file": ("open agentd's memory as a file", _file),
    "maps": ("read agentd's memory map", _file),
    "stack": ("read agentd's stack", _file),
    "program": ("find agentd's program", _file),
    "root": ("find agentd's root", _file),
    "descriptors": ("list agentd's descriptors", surroundings.agent_descriptors),
    "descriptor_links": ("see what agentd's descriptors are", _hidden),
    "oom_score": ("make the OOM killer prefer agentd", _file),
    "oom_score_of_thread": ("make the OOM killer prefer agentd's thread", _file),
    "name": ("rename agentd", _file),
}
_LIMIT: dict[str, tuple[str, Rule]] = {
    "memory": ("use more memory than its limit", surroundings.memory),
    "pids": ("have more processes than its limit", surroundings.pids),
    "cpus": ("use more CPU than its limit", surroundings.cpus),
    "processes_of_user": (
        "have more processes of one user than its limit",
        surroundings.processes_of_user,
    ),
    "open_files": ("open more files than its limit", surroundings.open_files),
    "core": ("start the machine's core dump handler", surroundings.core),
    "raise_open_files": ("raise its limit of open files", denied(cap="CAP_SYS_RESOURCE")),
    "raise_locked_memory": ("raise its limit of locked memory", denied(cap="CAP_SYS_RESOURCE")),
    "oom_hide": ("hide from the OOM killer", denied(FILE, cap="CAP_SYS_RESOURCE")),
    "oom_order": ("be spared by the OOM killer, and not agentd", surroundings.oom_order),
    "tmp": ("put more into /tmp than its limit", surroundings.size("tmp_bytes")),
    "shm": ("put more into /dev/shm than its limit", surroundings.size("shm_bytes")),
    "run": ("put more into /run than its limit", surroundings.size("run_bytes")),
}


def _all() -> Iterator[Try]:
    tables = {
        "identity": _IDENTITY,
        "namespace": _NAMESPACE,
        "descriptor": {"inherited": ("use descriptors nobody gave it", _hidden)},
        "machine": _MACHINE,
        "call": _CALL,
        "mount": _MOUNT,
        "proc": _PROC,
        "sys": _SYS,
        "device": _DEVICE,
        "socket": _SOCKET,
        "network": _NETWORK,
        "agent": _AGENT,
        "limit": _LIMIT,
    }
    for prefix, table in tables.items():
        for name, (opens, rule) in table.items():
            yield Try(f"{prefix}.{name}", GROUPS[prefix], opens, rule)


CATALOGUE: Final = {entry.name: entry for entry in _all()}
