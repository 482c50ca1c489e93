"""The files people write: a project's `agentkernel.toml` and the user's `config.toml`.

    finding     where they are; the only module loaded when there are none
    schema      the closed list of keys, and what each may hold
    addresses   addresses and names of a network, as people write them
    reading     a file's bytes → checked values with their lines
    resolving   flags, project, user, profile → one value a key, with where it comes from
    widening    what a project's file asks for beyond what the user's own defaults give
    trust       which files, with which content, the user has said yes to
    editing     one key of the user's file, everything else left as it is

Standard library only: clients read files, the daemon is told values.
"""
