"""Fetching images from registries, by the distribution protocol that all of them speak.

    settings     what the user's config says of registries
    hosts        a reference → the addresses where it may be fetched, mirrors first
    dialling     one request to one address: names resolved and judged, TLS, the machine's proxy
    credentials  logins of docker and podman; helpers: the programs that keep them
    challenges   what a registry's 401 asks for; tokens: what is sent in answer
    client       manifests and blobs of one repository at one address
    failures     what went wrong, in words and with what to do about it
    blobs        one blob: gone on with where an earlier try ended, verified while it comes
    pulling      an image: index, manifest, config, layers

The registry is a stranger. What it says is bounded, what it sends is verified by digest, and where
it leads (redirects, realms of tokens) is judged before anybody goes there.
"""
