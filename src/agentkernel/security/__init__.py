"""What a sandbox may do to the kernel beneath it.

    profiles        the three security profiles: capabilities, seccomp profile, default limits
    capabilities    capability names, numbers and masks
    seccomp/        syscall tables, the OCI profile reader, the filter compiler

Nothing here touches a process: these modules turn a choice ("moderate") into data (a capability
mask, the bytes of a filter) that the launcher and the guest agent then apply.
"""
