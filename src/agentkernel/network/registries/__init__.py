"""Where this machine's own package clients get their packages from, read at run time.

    places      bounded reading of files, and what has to be looked at to see a change
    addresses   an index's address → host, port, credentials apart
    credentials netrc files; which half of a pair is the secret
    pip npm apt cargo go maven gems     one client each
    known       what each of them asks when the machine says nothing
    machine     all of it: registries, rules, credentials

Only the machine's and the user's configuration is read, never a project's: a sandbox works on the
project, and could write there what its successor is allowed.
"""
