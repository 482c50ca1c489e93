"""A machine made of files, with secrets planted where real machines have them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.images.model import IdView

from .fake_files import KEY_TEXT, MARKER, link, program, put


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    old = os.umask(0o022)
    yield
    os.umask(old)


@pytest.fixture
def ids() -> IdView:
    """The view that needs no privileges."""
    return IdView("single", 0, os.getuid())


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A merged-/usr machine; what may be seen says "public", what may not holds MARKER."""
    root = tmp_path / "machine"
    for directory in ("usr/bin", "usr/sbin", "usr/lib", "usr/local/bin", "etc", "var", "root"):
        (root / directory).mkdir(parents=True)
    for name in ("bin", "sbin", "lib"):
        link(root, name, f"usr/{name}")
    program(root, "usr/bin/bash")
    put(root, "usr/lib/os-release", "ID=public\n")
    put(root, "usr/share/zoneinfo/Etc/UTC", "public-zone")
    put(root, "usr/share/ca-certificates/good.crt", "public")
    program(root, "usr/lib/jvm/java")

    link(root, "etc/os-release", "../usr/lib/os-release")
    link(root, "etc/localtime", "/usr/share/zoneinfo/Etc/UTC")
    link(root, "etc/alternatives/java", "/usr/lib/jvm/java")
    put(root, "etc/ld.so.cache", "public")
    put(root, "etc/services", "ssh 22/tcp\n")
    put(root, "etc/ssl/openssl.cnf", "public")
    put(root, "etc/ssl/certs/ca-certificates.crt", "public")
    link(root, "etc/ssl/certs/good.pem", "/usr/share/ca-certificates/good.crt")
    link(root, "etc/ssl/certs/abcd.0", "good.pem")
    put(root, "etc/apt/keyrings/vendor.gpg", "public")
    put(root, "etc/java-17-openjdk/security/java.security", "public")
    put(root, "etc/python3.11/sitecustomize.py", "public")

    # accounts, names and keys
    for name in (
        "passwd",
        "passwd-",
        "group",
        "subuid",
        "hosts",
        "hostname",
        "machine-id",
        "issue",
    ):
        put(root, f"etc/{name}", MARKER)
    for name in ("shadow", "gshadow", "sudoers", "krb5.keytab"):
        put(root, f"etc/{name}", MARKER, 0o640)
    put(root, "etc/ssh/ssh_host_rsa_key", KEY_TEXT, 0o600)
    put(root, "etc/gitconfig", f"[url]\n{MARKER}")
    put(root, "etc/pip.conf", MARKER)
    put(root, "etc/apt/auth.conf", MARKER)
    put(root, "etc/environment", MARKER)
    put(root, "etc/profile", MARKER)
    put(root, "etc/profile.d/proxy.sh", MARKER)
    put(root, "etc/resolv.conf", f"search {MARKER}\n")
    put(root, "etc/nsswitch.conf", MARKER)
    # inside directories that are allowed
    put(root, "etc/ssl/private/server.key", KEY_TEXT)
    put(root, "etc/ssl/certs/server.key", MARKER)
    put(root, "etc/ssl/certs/combined.pem", KEY_TEXT)
    put(root, "etc/ssl/certs/ssl-cert-snakeoil.pem", MARKER)
    link(root, "etc/ssl/certs/5nake.0", "ssl-cert-snakeoil.pem")
    put(root, "etc/perl/Net/private.cfg", MARKER, 0o600)
    put(root, "etc/perl/closed/inside.cfg", MARKER)
    (root / "etc/perl/closed").chmod(0o700)
    put(root, "etc/maven/settings.xml", MARKER)
    put(root, "etc/vim/my-credentials.vim", MARKER)
    # links that lead out
    put(root, "root/.ssh/id_rsa", KEY_TEXT)
    put(root, "home/alice/notes", MARKER)
    link(root, "etc/ssl/certs/evil.pem", "/etc/shadow")
    link(root, "etc/alternatives/evil", "../../home/alice/notes")
    link(root, "etc/alternatives/loop", "loop")
    link(root, "etc/fonts", "ssh")
    link(root, "etc/groff", "/home/alice")
    link(root, "etc/shells", "../root/.ssh/id_rsa")
    # what is not a file
    os.mkfifo(root / "etc/vim/fifo")
    with open(root / "etc/vim/huge", "wb") as file:
        file.truncate((8 << 20) + 1)
    return root
