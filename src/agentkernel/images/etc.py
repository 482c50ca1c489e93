"""A clean `/etc`: what programs need from the machine's, and nothing that names or unlocks it.

What is copied is an allow-list of paths that packages own: lookup tables, certificates of
authorities, the loader's cache, language runtimes' configuration. From those, only files that
every account of the machine may read, that carry no private key, and whose names do not say that
they are secret. Accounts, names, resolver and shell start-up files are written fresh.
"""

from __future__ import annotations

import os
import re
import stat
from fnmatch import translate
from functools import cache

from agentkernel.images.view import View

# Paths below the machine's root; `*` stands for a part of one name, once in it. A directory stands
# for all below it.
ALLOWED = (
    # programs find each other and their libraries
    "etc/alternatives",
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d",
    "etc/ld-musl-*.path",
    # whom to trust: public certificates only
    "etc/ssl/certs",
    "etc/ssl/cert.pem",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/openssl.cnf",
    "etc/ca-certificates",
    "etc/ca-certificates.conf",
    "etc/crypto-policies",
    "etc/pki/ca-trust/extracted",
    "etc/pki/java",
    "etc/pki/rpm-gpg",
    "etc/pki/tls/cert.pem",
    "etc/pki/tls/certs",
    "etc/pki/tls/openssl.cnf",
    "etc/pki/tls/ct_log_list.cnf",
    "etc/pki/tls/openssl.d",
    "var/lib/ca-certificates",
    "etc/apt/keyrings",
    "etc/apt/preferences.d",
    "etc/apt/trusted.gpg.d",
    # which system this is
    "etc/os-release",
    "etc/lsb-release",
    "etc/*-release",
    "etc/debian_version",
    "etc/timezone",
    "etc/locale.alias",
    "etc/locale.conf",
    "etc/locale.gen",
    # tables
    "etc/services",
    "etc/protocols",
    "etc/rpc",
    "etc/netconfig",
    "etc/ethertypes",
    "etc/host.conf",
    "etc/gai.conf",
    "etc/bindresvport.blacklist",
    "etc/mime.types",
    "etc/magic",
    "etc/magic.mime",
    "etc/shells",
    "etc/terminfo",
    "etc/inputrc",
    "etc/xattr.conf",
    "etc/mke2fs.conf",
    "etc/iproute2",
    "etc/apk/arch",
    "etc/dpkg",
    "etc/rpm",
    "etc/adduser.conf",
    "etc/deluser.conf",
    "etc/debconf.conf",
    "etc/ucf.conf",
    "etc/papersize",
    "etc/rmt",
    # languages and tools
    "etc/python2*",
    "etc/python3*",
    "etc/perl",
    "etc/java",
    "etc/java-*",
    "etc/jvm",
    "etc/jvm-*",
    "etc/maven",
    "etc/ant.conf",
    "etc/ant.d",
    "etc/mono",
    "etc/dotnet",
    "etc/php/*/cli",
    "etc/php/*/mods-available",
    "etc/php.d",
    "etc/php.ini",
    "etc/R",
    "etc/octave*",
    "etc/ghostscript",
    "etc/ImageMagick-*",
    "etc/fonts",
    "etc/groff",
    "etc/texmf",
    "etc/sgml",
    "etc/xml",
    "etc/dictionaries-common",
    "etc/emacs",
    "etc/vim",
    "etc/vimrc",
    "etc/nanorc",
    "etc/newt",
    "etc/gdb",
    "etc/gdbinit",
    "etc/gdbinit.d",
    "etc/gprofng.rc",
    "etc/libreoffice",
    "etc/manpath.config",
    "etc/man_db.conf",
    "etc/GREP_COLORS",
    "etc/DIR_COLORS*",
    "etc/OpenCL",
    "etc/vulkan",
    "etc/glvnd",
    "etc/X11/rgb.txt",
    "etc/X11/app-defaults",
)

# Patterns of single names; a match anywhere on the way is never copied, allowed or not.
DENIED = (
    "private",
    "*.key",
    "*.keytab",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.gpg.conf",
    "*[-~]",
    "*.bak",
    "*.old",
    "*.orig",
    "*.dpkg-*",
    "*.rpmsave",
    "*shadow*",
    "*passwd*",
    "*password*",
    "*secret*",
    "*credential*",
    "*token*",
    "*netrc*",
    "*npmrc*",
    "*snakeoil*",
    "localhost.crt",
    "sudoers*",
    "ssh",
    "machine-id",
    "Renviron*",
    "settings*.xml",
    "auth.json",
    ".git*",
    "pip.conf",
)

MAX_FILE = 8 << 20
UNLIMITED = ("ld.so.cache",)
MAX_TOTAL = 64 << 20
MAX_ENTRIES = 20_000
MAX_DEPTH = 8
KEY_MARK = b"PRIVATE KEY-----"

# Where a link in /etc may point to although this layer does not hold it.
SHOWN_ELSEWHERE = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt")


@cache
def rules() -> tuple[object, ...]:
    """What decides the content of a layer besides the machine: part of its key."""
    return (ALLOWED, DENIED, MAX_FILE, tuple(sorted(fresh_files("").items())))


def is_denied(path: str) -> bool:
    """Whether a part of `path` is a name that is never copied."""
    return any(map(_denied_name().match, path.split("/")))


@cache
def _denied_name() -> re.Pattern[str]:
    return re.compile("|".join(map(translate, DENIED)))


def sources(machine: str) -> list[str]:
    """The allow-listed paths that exist, relative to the machine's root."""
    top = set(_listing(f"{machine}/etc"))
    found: dict[str, None] = {}
    for pattern in ALLOWED:
        first, *rest = pattern.split("/")
        if first == "etc" and "*" not in rest[0] and rest[0] not in top:
            continue
        paths = [first]
        for part in rest:
            if "*" not in part:
                paths = [f"{path}/{part}" for path in paths]
                continue
            start, _, end = part.partition("*")
            paths = [
                f"{path}/{name}"
                for path in paths
                for name in (top if path == "etc" else _listing(f"{machine}/{path}"))
                if name.startswith(start) and name.endswith(end)
            ]
            paths.sort()
        for path in paths:
            if path not in found and os.path.lexists(f"{machine}/{path}"):
                found[path] = None
    return list(found)


def _listing(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


class Copier:
    """Copies allow-listed paths from the machine to a layer, leaving out what must not be seen."""

    def __init__(self, machine: str, layer: str) -> None:
        self.machine = machine
        self.layer = layer
        self.outside = View([("/", [machine])])
        self.links: list[str] = []
        self.total = 0
        self.entries = 0

    def copy_all(self) -> None:
        for path in sources(self.machine):
            self.copy(path)
        self._drop_dead_links()

    def copy(self, path: str, depth: int = 0) -> None:
        """Copy `path` (relative) with all below it."""
        if is_denied(path) or depth > MAX_DEPTH or self.entries >= MAX_ENTRIES:
            return
        self.entries += 1
        source = f"{self.machine}/{path}"
        try:
            info = os.lstat(source)
        except OSError:
            return
        if not self._reachable(path):
            return
        if stat.S_ISLNK(info.st_mode):
            self._link(path)
        elif stat.S_ISDIR(info.st_mode):
            if info.st_mode & 0o005 == 0o005:
                make_directories(self.layer, path)
                for name in _listing(source):
                    self.copy(f"{path}/{name}", depth + 1)
        elif stat.S_ISREG(info.st_mode):
            self.file(source, path)

    def file(self, source: str, path: str) -> None:
        """Copy one regular file that everybody may read."""
        if os.path.lexists(f"{self.layer}/{path}"):
            return
        try:
            fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        with open(fd, "rb") as stream:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or not info.st_mode & 0o004:
                return
            limit = MAX_TOTAL if os.path.basename(path) in UNLIMITED else MAX_FILE
            if info.st_size > limit or self.total + info.st_size > MAX_TOTAL:
                return
            try:
                content = stream.read(limit + 1)
            except OSError:
                return
        if len(content) > limit or KEY_MARK in content:
            return
        self.total += len(content)
        write(self.layer, path, content, 0o755 if info.st_mode & 0o001 else 0o644)

    def _reachable(self, path: str) -> bool:
        """Whether the way to `path` holds no link: an allowed name may not lead elsewhere."""
        parent = os.path.dirname(path)
        while parent:
            if os.path.islink(f"{self.machine}/{parent}"):
                return False
            parent = os.path.dirname(parent)
        return True

    def _link(self, path: str) -> None:
        target = os.readlink(f"{self.machine}/{path}")
        end = self.outside.resolve("/" + path)
        if end is not None and end.startswith("/nix/store/"):
            # NixOS links all of /etc there, through names that do not exist inside.
            host = self.outside.host(end)
            if host is not None and not os.path.isdir(host):
                self.file(host, path)
            return
        make_directories(self.layer, os.path.dirname(path))
        if not os.path.lexists(f"{self.layer}/{path}"):
            os.symlink(target, f"{self.layer}/{path}")
            self.links.append(path)

    def _drop_dead_links(self) -> None:
        """Remove links that lead nowhere inside. A link may depend on another, so: repeat."""
        view = View(
            [("/", [self.layer])]
            + [(f"/{name}", [f"{self.machine}/{name}"]) for name in SHOWN_ELSEWHERE]
        )
        remaining = self.links
        while True:
            alive = [path for path in remaining if self._leads_somewhere(view, path)]
            for path in set(remaining) - set(alive):
                os.unlink(f"{self.layer}/{path}")
            if len(alive) == len(remaining):
                return
            remaining = alive

    def _leads_somewhere(self, view: View, path: str) -> bool:
        target = os.readlink(f"{self.layer}/{path}")
        return target.startswith("/opt/") or view.resolve("/" + path) is not None


def make_directories(layer: str, path: str, mode: int = 0o755) -> None:
    """Make `path` and its parents in the layer, whatever the umask."""
    missing = []
    while path and not os.path.isdir(f"{layer}/{path}"):
        missing.append(path)
        path = os.path.dirname(path)
    for item in reversed(missing):
        os.mkdir(f"{layer}/{item}")
        os.chmod(f"{layer}/{item}", 0o755)
    if missing and mode != 0o755:
        os.chmod(f"{layer}/{missing[0]}", mode)


def write(layer: str, path: str, content: bytes | str, mode: int = 0o644) -> None:
    """Write one file of the layer, replacing what is there."""
    make_directories(layer, os.path.dirname(path))
    full = f"{layer}/{path}"
    if os.path.lexists(full):
        os.unlink(full)
    data = content.encode() if isinstance(content, str) else content
    fd = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as stream:
        stream.write(data)
        os.fchmod(fd, mode)


def build_etc(machine: str, layer: str) -> None:
    """Fill `layer` with the copied and the fresh part of `/etc`."""
    copier = Copier(machine, layer)
    copier.copy_all()
    zone = copier.outside.resolve("/etc/localtime")
    host = None if zone is None else copier.outside.host(zone)
    if zone is not None and host is not None and zone.startswith(("/usr/", "/etc/")):
        copier.file(host, "etc/localtime")
    shell = "/bin/bash" if copier.outside.resolve("/bin/bash") else "/bin/sh"
    for path, content in fresh_files(shell).items():
        write(layer, path, content)
    os.chmod(f"{layer}/etc/shadow", 0o600)
    os.chmod(f"{layer}/etc/gshadow", 0o600)
    write(layer, "etc/mtab", "")
    os.unlink(f"{layer}/etc/mtab")
    os.symlink("/proc/self/mounts", f"{layer}/etc/mtab")
    make_directories(layer, "etc/skel")
    make_directories(layer, "etc/profile.d")


# name, uid, gid, comment, home; the last one gets a shell.
ACCOUNTS = (
    ("daemon", 1, 1, "daemon", "/usr/sbin"),
    ("bin", 2, 2, "bin", "/bin"),
    ("sys", 3, 3, "sys", "/dev"),
    ("man", 6, 12, "man", "/var/cache/man"),
    ("mail", 8, 8, "mail", "/var/mail"),
    ("www-data", 33, 33, "www-data", "/var/www"),
    ("_apt", 42, 65534, "", "/nonexistent"),
    ("nobody", 65534, 65534, "nobody", "/nonexistent"),
)
GROUPS = (
    ("root", 0),
    ("daemon", 1),
    ("bin", 2),
    ("sys", 3),
    ("adm", 4),
    ("tty", 5),
    ("disk", 6),
    ("mail", 8),
    ("man", 12),
    ("kmem", 15),
    ("sudo", 27),
    ("www-data", 33),
    ("shadow", 42),
    ("utmp", 43),
    ("video", 44),
    ("staff", 50),
    ("users", 100),
    ("user", 1000),
    ("nogroup", 65534),
)

PROFILE = """\
# For login shells. PATH and the rest of the environment are the sandbox's: nothing resets them.
export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"
umask 022
for script in /etc/profile.d/*.sh; do
    [ -r "$script" ] && . "$script"
done
unset script
[ -n "${BASH_VERSION-}" ] && [ -r /etc/bash.bashrc ] && . /etc/bash.bashrc
:
"""
BASHRC = """\
# For interactive shells.
case $- in *i*) ;; *) return 0 ;; esac
shopt -s checkwinsize
PS1='\\u@\\h:\\w\\$ '
"""
LOGIN_DEFS = """\
MAIL_DIR /var/mail
UMASK 022
UID_MIN 1000
UID_MAX 60000
SYS_UID_MIN 101
SYS_UID_MAX 999
GID_MIN 1000
GID_MAX 60000
SYS_GID_MIN 101
SYS_GID_MAX 999
USERGROUPS_ENAB yes
ENCRYPT_METHOD SHA512
SUB_UID_COUNT 0
SUB_GID_COUNT 0
ENV_SUPATH PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENV_PATH PATH=/usr/local/bin:/usr/bin:/bin
"""
HOSTS = """\
127.0.0.1 localhost sandbox
::1 localhost ip6-localhost ip6-loopback
"""
NSSWITCH = """\
passwd: files
group: files
shadow: files
gshadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
"""
# Root may become anybody; nobody has a password, so nobody else may.
PAM = """\
auth sufficient pam_rootok.so
auth required pam_unix.so
account required pam_permit.so
password required pam_unix.so sha512
session required pam_permit.so
"""
PAM_SERVICES = (
    *("other", "login", "su", "su-l", "runuser", "runuser-l", "passwd", "chpasswd", "newusers"),
    *("useradd", "usermod", "userdel", "groupadd", "groupmod", "groupdel", "chfn", "chsh"),
)
PAM_COMMON = ("auth", "account", "password", "session", "session-noninteractive")


def fresh_files(shell: str) -> dict[str, str]:
    """The files that are the same on every machine, by path relative to the root."""
    accounts = [f"root:x:0:0:root:/root:{shell}"]
    accounts += [
        f"{name}:x:{uid}:{gid}:{comment}:{home}:/usr/sbin/nologin"
        for name, uid, gid, comment, home in ACCOUNTS
    ]
    accounts.append(f"user:x:1000:1000::/home/user:{shell}")
    names = [line.split(":", 1)[0] for line in accounts]
    files = {
        "etc/passwd": "".join(line + "\n" for line in accounts),
        "etc/shadow": "".join(f"{name}:*:20000:0:99999:7:::\n" for name in names),
        "etc/group": "".join(f"{name}:x:{gid}:\n" for name, gid in GROUPS),
        "etc/gshadow": "".join(f"{name}:*::\n" for name, _ in GROUPS),
        "etc/subuid": "",
        "etc/subgid": "",
        "etc/hostname": "sandbox\n",
        "etc/hosts": HOSTS,
        "etc/resolv.conf": "# No name server: this sandbox has no way out.\n",
        "etc/machine-id": "",
        "etc/nsswitch.conf": NSSWITCH,
        "etc/environment": "",
        "etc/fstab": "",
        "etc/login.defs": LOGIN_DEFS,
        "etc/profile": PROFILE,
        "etc/bash.bashrc": BASHRC,
    }
    for service in PAM_SERVICES:
        files[f"etc/pam.d/{service}"] = PAM
    for kind in PAM_COMMON:
        lines = [line for line in PAM.splitlines() if line.split()[0] == kind.split("-")[0]]
        files[f"etc/pam.d/common-{kind}"] = "".join(line + "\n" for line in lines)
    return files
