"""A git server and a Python package index, as handlers of a web server."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import zipfile
from pathlib import Path

from .web import Answer, Request

PACKAGE = "worldly"


class GitServer:
    """`git http-backend` over one bare repository, which may be pushed to."""

    def __init__(self, place: Path) -> None:
        self._place = place
        tree = place / "work"
        bare = place / "project.git"
        for words in (
            ["init", "-q", "-b", "main", str(tree)],
            ["-C", str(tree), "commit", "-q", "--allow-empty", "-m", "first"],
            ["clone", "-q", "--bare", str(tree), str(bare)],
            ["-C", str(bare), "config", "http.receivepack", "true"],
        ):
            subprocess.run(["git", *words], check=True, env=_git_environment(), timeout=30)
        self.head = subprocess.run(
            ["git", "-C", str(bare), "rev-parse", "main"],
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
            env=_git_environment(),
        ).stdout.strip()

    def __call__(self, request: Request) -> Answer:
        path, _, query = request.target.partition("?")
        environment = {
            **_git_environment(),
            "GIT_PROJECT_ROOT": str(self._place),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": path.removeprefix("/git"),
            "QUERY_STRING": query,
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
            "REMOTE_USER": "guest",
        }
        done = subprocess.run(
            ["git", "http-backend"],
            input=request.body,
            capture_output=True,
            env=environment,
            timeout=30,
            check=False,
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = {}
        for line in head.decode().split("\r\n"):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        status = int(headers.pop("status", "200").split(" ")[0])
        return Answer(status, body, {k: v for k, v in headers.items() if k})


def _git_environment() -> dict[str, str]:
    who = {f"GIT_{role}_{part}": "world" for role in ("AUTHOR", "COMMITTER") for part in ("NAME",)}
    mail = {f"GIT_{role}_EMAIL": "world@example.test" for role in ("AUTHOR", "COMMITTER")}
    return {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/", **who, **mail}


class PackageIndex:
    """One wheel of one module, in the form that pip reads."""

    def __init__(self) -> None:
        self.wheel_name = f"{PACKAGE}-1.0-py3-none-any.whl"
        self.wheel = _wheel()

    def __call__(self, request: Request) -> Answer:
        if request.path.endswith(self.wheel_name):
            return Answer(body=self.wheel, headers={"content-type": "application/octet-stream"})
        if request.path.rstrip("/").endswith(f"/simple/{PACKAGE}"):
            digest = hashlib.sha256(self.wheel).hexdigest()
            link = f"<a href='/simple/files/{self.wheel_name}#sha256={digest}'>it</a>"
            page = f"<!DOCTYPE html><html><body>{link}</body></html>"
            return Answer(body=page.encode(), headers={"content-type": "text/html"})
        return Answer(404, b"no such package\n")


def _wheel() -> bytes:
    info = f"{PACKAGE}-1.0.dist-info"
    files = {
        f"{PACKAGE}.py": b"answer = 42\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: w\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    lines = [f"{name},{_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
