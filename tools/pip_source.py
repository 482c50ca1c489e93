"""Find a pip on a machine whose Python may have none.

In order: a wheel that came with Python (ensurepip's, or the distribution's directory of wheels),
the pip package of the running interpreter, the package index named by pip's own configuration,
and on Debian and its kin the distribution's package of it, fetched by apt without root.
The index must name a sha256, apt checks its signatures: nothing unverified is ever run.
Standard library only.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import html.parser
import importlib.util
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TIMEOUT = 60
APT_TIMEOUT = 300
WHEEL = re.compile(r"pip-(\d+(?:\.\d+)*)-py3-none-any\.whl")


class PipMissing(Exception):
    """No pip could be had; the text says what was tried."""


class Link(NamedTuple):
    """A wheel of pip on an index."""

    version: tuple[int, ...]
    url: str
    sha256: str


def bundled_wheel() -> Path | None:
    """The newest pip wheel that Python or the distribution put on this machine."""
    directories = [Path("/usr/share/python-wheels")]
    if configured := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        directories.append(Path(configured))
    spec = importlib.util.find_spec("ensurepip")
    if spec is not None and spec.origin is not None:
        directories.append(Path(spec.origin).parent / "_bundled")
    return newest_wheel(path for folder in directories for path in folder.glob("pip-*.whl"))


def newest_wheel(candidates: Iterator[Path]) -> Path | None:
    wheels = [path for path in candidates if WHEEL.fullmatch(path.name) and path.is_file()]
    return max(wheels, key=lambda path: version_of(path.name), default=None)


def version_of(filename: str) -> tuple[int, ...]:
    match = WHEEL.fullmatch(filename)
    return tuple(map(int, match[1].split("."))) if match else ()


def base_package() -> Path | None:
    """The directory of the running interpreter's own `pip` package."""
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    return package if (package / "__main__.py").is_file() else None


def pip_setting(name: str) -> str | None:
    """One of pip's settings, from its environment variable or its configuration files."""
    if value := os.environ.get("PIP_" + name.upper().replace("-", "_")):
        return value
    found = None
    for path in _configuration_files():
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (OSError, UnicodeDecodeError, configparser.Error):
            continue
        for section in ("global", "install"):
            found = parser.get(section, name, fallback=None) or found
    return found


def _configuration_files() -> list[Path]:
    """pip's files, the most important last."""
    if os.environ.get("PIP_CONFIG_FILE") == os.devnull:
        return []
    shared = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    files = [Path(folder) / "pip/pip.conf" for folder in reversed(shared.split(os.pathsep))]
    files.append(Path("/etc/pip.conf"))
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("/nonexistent")
    files.append(home / ".pip/pip.conf")
    files.append(Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf")
    files.append(Path(sys.base_prefix) / "pip.conf")
    if own := os.environ.get("PIP_CONFIG_FILE"):
        files.append(Path(own))
    return files


def from_links(scratch: Path) -> Path | None:
    """A wheel from the places that pip's `find-links` and `index-url` name."""
    pages = []
    for place in (pip_setting("find-links") or "").split():
        folder = Path(place.removeprefix("file://"))
        if folder.is_dir():
            if wheel := newest_wheel(folder.glob("pip-*.whl")):
                return wheel
        elif "://" in place and not place.startswith("file:"):
            pages.append(place)
    if os.environ.get("PIP_NO_INDEX", "0").lower() in ("", "0", "false", "no", "off"):
        indexes = [pip_setting("index-url") or "", *(pip_setting("extra-index-url") or "").split()]
        pages += [index.rstrip("/") + "/pip/" for index in indexes if index]
    failures = []
    for page in pages:
        try:
            links = read_page(page)
            if links:
                return _download(max(links), scratch)
            failures.append(f"{page}: no wheel of pip with a sha256")
        except (OSError, ValueError) as error:
            failures.append(f"{_without_password(page)}: {error}")
    if failures:
        raise PipMissing("; ".join(failures))
    return None


def read_page(page: str) -> list[Link]:
    """The usable wheels on a page of the simple index, JSON or HTML."""
    media = "application/vnd.pypi.simple.v1"
    content_type, body = _get(page, f"{media}+json, {media}+html;q=0.2, text/html;q=0.1")
    files = _json_files(body) if "json" in content_type else _html_files(body)
    links = []
    for href, sha256, needs in files:
        url = urllib.parse.urljoin(page, href)
        filename = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
        version = version_of(filename)
        minimum = re.search(r">=\s*3\.(\d+)", needs)
        supported = minimum is None or int(minimum[1]) <= sys.version_info.minor
        if version and sha256 and supported:
            links.append(Link(version, url, sha256))
    return links


def _json_files(body: bytes) -> Iterator[tuple[str, str, str]]:
    for file in json.loads(body)["files"]:
        if not file.get("yanked"):
            yield file["url"], file["hashes"].get("sha256", ""), file.get("requires-python") or ""


def _html_files(body: bytes) -> Iterator[tuple[str, str, str]]:
    class Anchors(html.parser.HTMLParser):
        found: list[dict[str, str | None]] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "a":
                self.found.append(dict(attrs))

    parser = Anchors()
    parser.found = []
    parser.feed(body.decode(errors="replace"))
    for anchor in parser.found:
        href, _, fragment = (anchor.get("href") or "").partition("#")
        if "data-yanked" not in anchor:
            algorithm, _, digest = fragment.partition("=")
            known = digest if algorithm == "sha256" else ""
            yield href, known, anchor.get("data-requires-python") or ""


def _download(link: Link, scratch: Path) -> Path:
    body = _get(link.url, "*/*")[1]
    if hashlib.sha256(body).hexdigest() != link.sha256:
        raise ValueError("the downloaded pip does not have the sha256 that the index names")
    wheel = scratch / f"pip-{'.'.join(map(str, link.version))}-py3-none-any.whl"
    wheel.write_bytes(body)
    return wheel


def _get(url: str, accept: str) -> tuple[str, bytes]:
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(_without_password(url), headers={"Accept": accept})
    if parts.username is not None:
        pair = (
            f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        )
        token = base64.b64encode(pair.encode()).decode()
        # Not sent on to wherever the index redirects.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    bundle = pip_setting("cert") or os.environ.get("SSL_CERT_FILE")
    context = ssl.create_default_context(cafile=bundle or None)
    with urllib.request.urlopen(request, timeout=TIMEOUT, context=context) as reply:
        return reply.headers.get("Content-Type", ""), reply.read()


def _without_password(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def from_apt(scratch: Path) -> Path | None:
    """The wheel in the distribution's own package, downloaded and unpacked without root."""
    apt, unpack = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or unpack is None:
        return None
    for folder in ("state/lists/partial", "cache/archives/partial", "tree"):
        (scratch / folder).mkdir(parents=True)
    # Lists and cache of our own: the system's may be missing, stale, or not ours to change.
    own = [apt, "-qq", "-o", f"Dir::State={scratch}/state", "-o", f"Dir::Cache={scratch}/cache"]
    own += ["-o", "APT::Sandbox::User=root", "-o", "APT::Update::Error-Mode=any"]
    for command in ([*own, "update"], [*own, "download", "python3-pip-whl"]):
        done = subprocess.run(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=APT_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            text = done.stdout.decode(errors="replace").strip()
            raise PipMissing(f"apt-get {command[-1]} failed: {text[-600:]}")
    for package in scratch.glob("*.deb"):
        subprocess.run([unpack, "-x", str(package), str(scratch / "tree")], check=True, timeout=60)
    return newest_wheel((scratch / "tree").glob("usr/share/python-wheels/pip-*.whl"))
