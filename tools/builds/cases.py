"""Dockerfiles of real shape, each with its context: what `tools/compare_builds.py` builds twice."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """`buildah`: another text for buildah, where that does not know an instruction. `says`: what
    the image's command writes. `may_differ`: paths (fnmatch) whose content is of its time."""

    name: str
    dockerfile: str
    files: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None
    buildah: str | None = None
    arguments: tuple[str, ...] = ()
    says: str = ""
    may_differ: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    packages: bool = False


def _odd_files(context: Path) -> None:
    (context / "src/deep").mkdir(parents=True)
    (context / "src/a").write_text("a\n")
    (context / "src/deep/b").write_text("b\n")
    os.chmod(context / "src/deep", 0o700)
    os.chmod(context / "src/deep/b", 0o600)
    os.symlink("a", context / "src/link")
    os.symlink("src", context / "directory-link")
    os.symlink("src/a", context / "file-link")
    for kind, name in (("w:gz", "t.tgz"), ("w:xz", "t.txz"), ("w", "t.tar")):
        with tarfile.open(context / name, kind) as archive:  # type: ignore[call-overload]
            _member(archive, "x", b"x\n", uid=7, gid=8)
            _member(archive, "d/", b"", type=tarfile.DIRTYPE, mode=0o711)
            _member(archive, "d/y", b"y\n", mode=0o4755)
            _member(archive, "d/l", b"", type=tarfile.SYMTYPE, linkname="../x")
    (context / "plain.gz").write_bytes(b"\x1f\x8b no archive")


def _member(archive: tarfile.TarFile, name: str, content: bytes, **more: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    archive.addfile(info, io.BytesIO(content))


_NODE_SERVER = """\
import isOdd from "is-odd";
import { readFileSync } from "node:fs";
console.log(isOdd(3), readFileSync(new URL("./banner.txt", import.meta.url), "utf8").trim());
"""

CASES: tuple[Case, ...] = (
    Case(
        "python-app",
        """\
ARG BASE
FROM $BASE/python
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
RUN python3 -m venv --without-pip /venv
COPY requirements.txt .
RUN pip --python /venv/bin/python install --no-cache-dir --no-compile -r requirements.txt \\
    && rm -rf /root/.cache
COPY . .
RUN useradd --create-home --uid 1001 app && rm -f /var/log/lastlog /var/log/faillog
USER app
EXPOSE 8000
ENTRYPOINT ["/venv/bin/python"]
CMD ["main.py"]
""",
        files={
            "requirements.txt": "click==8.1.7\nidna==3.7\n",
            "main.py": "import click, idna; click.echo(idna.encode('bücher.example').decode())\n",
            "templates/index.html": "<h1>hi</h1>\n",
        },
        says="xn--bcher-kva.example",
        needs=("python",),
        packages=True,
    ),
    Case(
        "node-multi-stage",
        """\
ARG BASE
FROM $BASE/node AS build
WORKDIR /src
COPY package.json ./
RUN npm install --no-audit --no-fund --no-package-lock --cache /tmp/npm \\
    && rm -rf /tmp/npm /root/.npm
COPY . .
RUN npm run build
FROM $BASE/node
ENV NODE_ENV=production
WORKDIR /srv
COPY --from=build /src/node_modules ./node_modules
COPY --from=build /src/dist/ ./
COPY package.json .
USER 1000:1000
CMD ["node", "server.mjs"]
""",
        files={
            "package.json": json.dumps(
                {
                    "name": "app",
                    "version": "1.0.0",
                    "type": "module",
                    "dependencies": {"is-odd": "3.0.1"},
                    "scripts": {"build": "mkdir -p dist && cp server.mjs banner.txt dist/"},
                }
            ),
            "server.mjs": _NODE_SERVER,
            "banner.txt": "welcome\n",
            ".dockerignore": "node_modules\nnpm-debug.log\n",
        },
        says="true welcome",
        may_differ=("*/.package-lock.json",),
        needs=("node",),
        packages=True,
    ),
    Case(
        "go-to-scratch",
        """\
ARG BASE
FROM $BASE/go AS build
WORKDIR /src
COPY go.mod *.go ./
ENV CGO_ENABLED=0 GOFLAGS=-trimpath GOCACHE=/tmp/cache GOTOOLCHAIN=local GOPROXY=off
RUN go build -ldflags="-s -w -buildid=" -o /out/app . && rm -rf /tmp/cache
FROM scratch
COPY --from=build /out/app /app
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
USER 65534
ENTRYPOINT ["/app"]
""",
        files={
            "go.mod": "module example.test/app\n\ngo 1.21\n",
            "main.go": 'package main\n\nimport "fmt"\n\n'
            'func main() { fmt.Println("from scratch") }\n',
        },
        says="from scratch",
        needs=("go",),
    ),
    Case(
        "apt-get",
        """\
ARG BASE
FROM $BASE/debian
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update \\
    # what the script needs
    && apt-get install -y --no-install-recommends jq \\
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY check.sh /usr/local/bin/check
RUN chmod +x /usr/local/bin/check
CMD check
""",
        files={"check.sh": "#!/bin/sh\necho '{\"a\": [1, 2]}' | jq -c .a\n"},
        says="[1,2]",
        may_differ=(
            "var/cache/ldconfig/aux-cache",
            "var/lib/dpkg/status*",
            "var/lib/apt/extended_states",
        ),
        needs=("debian",),
        packages=True,
    ),
    Case(
        "users",
        """\
ARG BASE
FROM $BASE/debian
RUN groupadd --gid 2000 team && useradd --uid 2001 --gid team --create-home app \\
    && rm -f /var/log/lastlog /var/log/faillog
WORKDIR /home/app/work
RUN chown app:team . && chmod 2775 .
COPY --chown=app:team notes.txt ./
COPY --chown=0:2000 --chmod=0640 notes.txt shared.txt
COPY --chown=2001 notes.txt /opt/
USER app
RUN umask 077 && echo mine > private && mkdir -p .cache/x && id -un > who
USER app:root
RUN id -gn > group
USER root
RUN chmod u+s /usr/bin/tail && chown -R 33:33 /opt
USER app
CMD cat who group && stat -c '%U %G %a' private shared.txt .
""",
        files={"notes.txt": "notes\n"},
        says="app\nroot\napp team 600\nroot team 640\napp team 2775",
        needs=("debian",),
    ),
    Case(
        "heredocs",
        """\
ARG BASE
FROM $BASE/busybox
ARG NAME=world
RUN <<EOF
set -e
mkdir -p /etc/app
echo "one $NAME" > /etc/app/one
EOF
RUN <<'SCRIPT'
#!/bin/sh -e
echo "script $0" | sed 's,/.*,,' > /etc/app/script
SCRIPT
COPY <<config.ini <<-"raw.txt" /etc/app/
name = $NAME
config.ini
	kept $NAME
raw.txt
RUN cat <<A > /both && cat <<B >> /both
first
A
second
B
CMD cat /etc/app/* /both
""",
        buildah="""\
ARG BASE
FROM $BASE/busybox
ARG NAME=world
RUN mkdir -p /etc/app && echo "one $NAME" > /etc/app/one
RUN echo "script " > /etc/app/script
COPY config.ini raw.txt /etc/app/
RUN printf 'first\\nsecond\\n' > /both
CMD cat /etc/app/* /both
""",
        files={"config.ini": "name = world\n", "raw.txt": "kept $NAME\n"},
        says="name = world\none world\nkept $NAME\nscript \nfirst\nsecond",
        needs=("busybox",),
    ),
    Case(
        "arguments",
        """\
ARG BASE
ARG FLAVOUR=plain
ARG IMAGE=busybox
FROM $BASE/${IMAGE} AS base
ARG FLAVOUR
ARG VERSION=${FLAVOUR}-1
ENV FLAVOUR_SEEN=$FLAVOUR VERSION=${VERSION:-none} EMPTY= \\
    QUOTED="a  b \\"c\\" $FLAVOUR" SINGLE='$FLAVOUR' ESC=\\$FLAVOUR
ENV OLD style value with $FLAVOUR
ENV VERSION=${VERSION}+ PATH=$PATH:/opt/bin
ARG VERSION=ignored
RUN echo "$FLAVOUR|$VERSION|$QUOTED|$SINGLE|$ESC|$OLD" > /seen
FROM base
RUN echo "[$FLAVOUR][$FLAVOUR_SEEN]" >> /seen
ARG UNSET
LABEL flavour=${FLAVOUR_SEEN:+yes} unset="${UNSET:-no}" version=$VERSION
EXPOSE ${PORT:-8080} 9000/udp
WORKDIR /srv/$FLAVOUR_SEEN
VOLUME /data/${FLAVOUR_SEEN}
CMD cat /seen
""",
        arguments=("FLAVOUR=rich", "UNUSED=1"),
        says='rich|rich-1+|a  b "c" rich|$FLAVOUR|$FLAVOUR|style value with rich\n[][rich]',
        needs=("busybox",),
    ),
    Case(
        "ignored-files",
        """\
ARG BASE
FROM $BASE/busybox
COPY . /ctx
COPY docs/*.md /docs/
CMD find /ctx /docs -type f | sort
""",
        files={
            ".dockerignore": "# comment\n*.log\n**/*.tmp\ndocs\n!docs/README*.md\n/build/**\n"
            "!build/keep\nsecret?\n[a-c]*.cfg\n",
            "app.py": "app\n",
            "run.log": "no\n",
            "deep/run.log": "yes\n",
            "deep/er/x.tmp": "no\n",
            "docs/README.md": "yes\n",
            "docs/README-more.md": "yes\n",
            "docs/other.md": "no\n",
            "build/out.o": "no\n",
            "build/keep": "yes\n",
            "secret1": "no\n",
            "secret12": "yes\n",
            "b.cfg": "no\n",
            "d.cfg": "yes\n",
        },
        says="/ctx/.dockerignore\n/ctx/Dockerfile\n/ctx/app.py\n/ctx/build/keep\n/ctx/d.cfg\n"
        "/ctx/deep/run.log\n/ctx/docs/README-more.md\n/ctx/docs/README.md\n/ctx/secret12\n"
        "/docs/README-more.md\n/docs/README.md",
        needs=("busybox",),
    ),
    Case(
        "odd-files",
        """\
ARG BASE
FROM $BASE/busybox AS one
RUN mkdir -p /o/sub /real /keep && ln -s /real /link && ln -s sub /o/to-sub \\
    && echo q > /o/sub/q && ln /o/sub/q /o/hard && chown -R 5:6 /o && chmod 4755 /o/sub/q \\
    && chmod 750 /keep && chown 3:4 /keep && echo old > /keep/old && mkdir /keep/gone
FROM one
COPY --from=one /o /copied
COPY --from=0 /o/to-sub /copied-link
COPY --from=one --chown=9 /o/hard /o/sub/q /two/
COPY src /c1
COPY src/ /c2/
COPY directory-link /c3
COPY file-link /c4/
COPY src/link /c5
COPY src /link/
COPY src/a /link/new/deeper/name
COPY src/deep/b /keep/
COPY --chmod=0640 src /c6
COPY --chown=11:12 src /c7
COPY s*/[ab] /c8/
COPY ["src/a", "src/deep/b", "/with blank/"]
ADD t.tgz /t1
ADD t.txz /t2/
ADD t.tar plain.gz /t3/
COPY t.tar /t4/
COPY . /all
RUN rm -rf /keep/gone /keep/old /all/src && mkdir /keep/gone && echo new > /keep/gone/new \\
    && mv /c1 /moved && ln -sf /nowhere /c5 && mkdir -p /run/lock && echo r > /run/lock/r \\
    && echo t > /tmp/t && chmod 1777 /tmp
WORKDIR /w/x
COPY src/a rel
CMD find /keep /moved /two | sort
""",
        prepare=_odd_files,
        says="/keep\n/keep/b\n/keep/gone\n/keep/gone/new\n/moved\n/moved/a\n/moved/deep\n"
        "/moved/deep/b\n/moved/link\n/two\n/two/hard\n/two/q",
        needs=("busybox",),
    ),
    Case(
        "metadata",
        """\
ARG BASE
FROM $BASE/busybox
MAINTAINER somebody@example.test
LABEL org.example.title="A title" org.example.many=1 \\
      org.example.more="2"
SHELL ["/bin/sh", "-e", "-c"]
RUN echo built > /built
EXPOSE 80 443/tcp 53/udp
VOLUME ["/data", "/var/lib/app"]
STOPSIGNAL SIGINT
HEALTHCHECK --interval=30s --timeout=5s --start-period=1m --retries=2 CMD test -f /built
ENTRYPOINT cat
CMD ["/etc/hostname"]
ENTRYPOINT ["/bin/cat"]
CMD ["/built"]
""",
        says="built",
        needs=("busybox",),
    ),
    Case(
        "stages",
        """\
ARG BASE
FROM $BASE/busybox AS tools
RUN mkdir -p /tools && echo tool > /tools/tool
FROM tools AS unused
RUN exit 1
FROM $BASE/busybox AS assets
COPY a.txt b.txt /assets/
RUN cat /assets/*.txt > /assets/all
FROM $BASE/debian AS version
FROM tools AS final
COPY --from=assets /assets/all /srv/all
COPY --from=tools /tools /srv/tools
COPY --from=version /etc/debian_version /srv/
RUN ln -s all /srv/current
CMD cat /srv/current /srv/tools/tool
FROM scratch AS after
COPY a.txt /
""",
        buildah="""\
ARG BASE
FROM $BASE/busybox AS tools
RUN mkdir -p /tools && echo tool > /tools/tool
FROM $BASE/busybox AS assets
COPY a.txt b.txt /assets/
RUN cat /assets/*.txt > /assets/all
FROM $BASE/debian AS version
FROM tools AS final
COPY --from=assets /assets/all /srv/all
COPY --from=tools /tools /srv/tools
COPY --from=version /etc/debian_version /srv/
RUN ln -s all /srv/current
CMD cat /srv/current /srv/tools/tool
""",
        files={"a.txt": "a\n", "b.txt": "b\n"},
        arguments=("--target", "final"),
        says="a\nb\ntool",
        needs=("busybox", "debian"),
    ),
)
