"""A server with one small package in every language, which writes down what it is asked.

It runs by itself: `python small_registries.py PORT LOG CERTIFICATE`, in plain text on PORT and with
TLS on the next one. What is below /private wants a password or a token; nothing may be posted.
"""

from __future__ import annotations

import hashlib
import io
import json
import ssl
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(sys.argv[1])
LOG = sys.argv[2]
HERE = f"https://127.0.0.1:{PORT + 1}/private"


def tgz(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def zipped(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


WHEEL = zipped(
    {
        "tiny.py": "VALUE = 1\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        "tiny-1.0.dist-info/RECORD": "tiny.py,,\n",
    }
)
PACKAGE = tgz({"package/package.json": '{"name": "tiny", "version": "1.0.0"}'})
MODULE = "module example.com/tiny\n"
CRATE = tgz(
    {
        "tiny-1.0.0/Cargo.toml": '[package]\nname = "tiny"\nversion = "1.0.0"\n',
        "tiny-1.0.0/src/lib.rs": "",
    }
)
INDEX_LINE = json.dumps(
    {
        **{"name": "tiny", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False},
        "cksum": hashlib.sha256(CRATE).hexdigest(),
    }
)
PACKUMENT = {
    "name": "tiny",
    "dist-tags": {"latest": "1.0.0"},
    "versions": {
        "1.0.0": {
            "name": "tiny",
            "version": "1.0.0",
            "dist": {
                "tarball": f"{HERE}/npm/tiny/-/tiny-1.0.0.tgz",
                "shasum": hashlib.sha1(PACKAGE).hexdigest(),
            },
        }
    },
}
GO = "/private/go/example.com/tiny/@v/"
ANSWERS = {
    "/private/simple/tiny/": b'<a href="/private/tiny-1.0-py3-none-any.whl">tiny</a>',
    "/private/tiny-1.0-py3-none-any.whl": WHEEL,
    "/private/npm/tiny": json.dumps(PACKUMENT).encode(),
    "/private/npm/tiny/-/tiny-1.0.0.tgz": PACKAGE,
    GO + "list": b"v1.0.0\n",
    GO + "v1.0.0.info": b'{"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}',
    GO + "v1.0.0.mod": MODULE.encode(),
    GO + "v1.0.0.zip": zipped(
        {"example.com/tiny@v1.0.0/go.mod": MODULE, "example.com/tiny@v1.0.0/a.go": "package tiny\n"}
    ),
    "/crates/config.json": json.dumps({"dl": f"https://127.0.0.1:{PORT + 1}/crates/dl"}).encode(),
    "/crates/ti/ny/tiny": INDEX_LINE.encode(),
    "/crates/dl/tiny/1.0.0/download": CRATE,
    "/private/own/config.json": json.dumps(
        {"dl": f"{HERE}/own/dl", "auth-required": True}
    ).encode(),
    "/private/own/ti/ny/tiny": INDEX_LINE.encode(),
    "/private/own/dl/tiny/1.0.0/download": CRATE,
}


class Handler(BaseHTTPRequestHandler):
    def answer(self) -> None:
        who = self.headers.get("Authorization", "")
        with open(LOG, "a") as log:
            log.write(json.dumps([self.command, self.path, who]) + "\n")
        body = ANSWERS.get(self.path, b"")
        status = 200 if body else 404
        if self.path.startswith("/private/") and not who:
            status, body = 401, b"who?"
        if self.command not in ("GET", "HEAD"):
            status, body = 403, b'{"error": "only GET and HEAD"}'
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if body[:1] == b"<" else "application/json")
        self.send_header("WWW-Authenticate", 'Basic realm="tiny"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    secure = ThreadingHTTPServer(("127.0.0.1", PORT + 1), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3])
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    threading.Thread(target=secure.serve_forever, daemon=True).start()
    print("ready", flush=True)  # noqa: T201
    server.serve_forever()
