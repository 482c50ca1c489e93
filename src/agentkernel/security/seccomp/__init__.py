"""System call filters: OCI seccomp profiles in, classic BPF out.

    syscalls        name and number tables, architectures
    profile         reads and checks a profile, evaluates its conditions
    compiler        profile + architecture -> an array of `struct sock_filter`
    profiles/       the profiles that ship with the package

The compiler is our own because a filter must be made in a few milliseconds with no library on the
machine, and because the shipped profiles lean on one rule libseccomp does not have: the first
matching entry of the file decides. `docs/reference/seccomp.md` says what each profile refuses.
"""
