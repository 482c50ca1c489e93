"""A Debian machine in software emulation, with cgroup v2 and systemd: see docs/reference/vm.md."""
