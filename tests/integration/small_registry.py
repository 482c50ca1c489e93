"""A server with one small crate, which writes down what it is asked.

It runs by itself: `python small_registry.py PORT LOG CERTIFICATE`, in plain text on PORT and with
TLS on the next one. What is below /private wants a token.
"""

from __future__ import annotations

import hashlib
import io
import json
import ssl
import sys
import tarfile
import threading
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
ANSWERS = {
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
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = answer

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
