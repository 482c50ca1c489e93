"""Registries that lie, stall, loop and break off. Each refusal has a control beside it: the same
image from the same server, without the lie, is pulled.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from agentkernel.errors import (
    ImageInvalidError,
    RateLimitedError,
    RegistryDeniedError,
    RegistryError,
    ResourceExhaustedError,
)
from agentkernel.images.oci.model import MAX_DOCUMENT, OCI_INDEX, OCI_LAYER, Platform
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.registry.pulling import Pulled, pull
from agentkernel.images.oci.registry.settings import RegistrySettings
from agentkernel.images.oci.store import ImageStore
from tests.images.conftest import QUICK
from tests.images.registry_tool import (
    MadeImage,
    descriptor,
    digest_of,
    make_image,
    make_index,
    make_layer,
)
from tests.images.scripted import Answer, Handler, Request, Scripted, chunked, in_turn, ranged

IMAGE = make_image([make_layer({"data": os.urandom(300_000)})])
LAYER = IMAGE.layers[0]
CONTENT = IMAGE.blobs[LAYER]
BLOB = f"/v2/app/blobs/{LAYER}"
MANIFEST = "/v2/app/manifests/1"
CONFIG = json.loads(IMAGE.manifest)["config"]["digest"]
PATIENT = replace(QUICK, pace=replace(QUICK.pace, tries=50))


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    async with Scripted() as running:
        running.serve(IMAGE, "app", "1")
        yield running


async def pulled(
    server: Scripted, store: ImageStore, settings: RegistrySettings = QUICK, name: str = "app:1"
) -> Pulled:
    return await pull(
        store,
        parse_reference(f"{server.address}/{name}"),
        settings=settings,
        platform=Platform(architecture="amd64", os="linux"),
    )


async def require_pulled(server: Scripted, store: ImageStore) -> None:
    """The control, and that what was refused before left nothing wrong behind."""
    server.serve(IMAGE, "app", "1")
    assert (await pulled(server, store)).digest == IMAGE.digest
    assert store.blob_path(LAYER).read_bytes() == CONTENT


def changed(image: MadeImage, **fields: Any) -> MadeImage:
    return replace(image, manifest=json.dumps(json.loads(image.manifest) | fields).encode())


# -- layers that are not what they say -----------------------------------------------------------


def _other(request: Request) -> Answer:
    return Answer(200, b"x" * len(CONTENT), {"Docker-Content-Digest": LAYER})


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        pytest.param(_other, "has the digest", id="other-bytes-and-a-lying-header"),
        pytest.param(lambda r: Answer(200, CONTENT + b"x"), "another size", id="longer"),
        pytest.param(lambda r: Answer(200, CONTENT[:-1]), "another size", id="shorter"),
        pytest.param(
            lambda r: chunked(itertools.repeat(b"x" * 65536)), "another size", id="endless"
        ),
        pytest.param(
            lambda r: Answer(200, CONTENT, {"Content-Encoding": "gzip"}), "encodes", id="encoded"
        ),
    ],
)
async def test_a_layer_that_is_another(
    server: Scripted, store: ImageStore, handler: Handler, message: str
) -> None:
    server.on(BLOB, handler)
    with pytest.raises((ImageInvalidError, RegistryError), match=message):
        await pulled(server, store)
    assert not store.has_blob(LAYER)
    assert store.names() == []
    # Nothing of it is what the next pull would go on with.
    partial = store.partial_path(LAYER)
    assert not partial.exists() or partial.stat().st_size == 0
    await require_pulled(server, store)


async def test_a_size_that_no_disk_has_is_refused_before_anything_is_fetched(
    server: Scripted, store: ImageStore
) -> None:
    layer = {"mediaType": OCI_LAYER, "digest": LAYER, "size": 1 << 44}
    image = changed(IMAGE, layers=[layer])
    server.on(MANIFEST, Answer(200, image.manifest, {"Content-Type": image.media_type}))
    with pytest.raises(ResourceExhaustedError, match="16.0 TiB are needed"):
        await pulled(server, store)
    assert server.asked(BLOB) == []
    await require_pulled(server, store)


async def test_another_size_for_a_layer_that_is_here(server: Scripted, store: ImageStore) -> None:
    await require_pulled(server, store)
    layer = {"mediaType": OCI_LAYER, "digest": LAYER, "size": 5}
    image = changed(IMAGE, layers=[layer])
    server.on(MANIFEST, Answer(200, image.manifest, {"Content-Type": image.media_type}))
    with pytest.raises(ImageInvalidError, match="its manifest says 5"):
        await pulled(server, store)
    await require_pulled(server, store)


# -- documents that are not what they say --------------------------------------------------------


def _document(**fields: Any) -> Answer:
    image = changed(IMAGE, **fields)
    return Answer(200, image.manifest, {"Content-Type": image.media_type})


def _index(*entries: Any) -> Answer:
    body = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": list(entries)}
    return Answer(200, json.dumps(body).encode(), {"Content-Type": OCI_INDEX})


_AMD64 = {"os": "linux", "architecture": "amd64"}
_ENTRY = {**descriptor(IMAGE.media_type, IMAGE.manifest), "platform": _AMD64}
_LAYER = {"mediaType": OCI_LAYER, "digest": LAYER, "size": len(CONTENT)}
_CONFIG = json.loads(IMAGE.manifest)["config"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(Answer(200, b"x" * (MAX_DOCUMENT + 1)), "more than 4 MiB", id="gigantic"),
        pytest.param(Answer(200, b'{"schemaVersion": 2'), "can't be read", id="cut-json"),
        pytest.param(Answer(200, b"[" * 100_000), "can't be read", id="deep-json"),
        pytest.param(Answer(200, b"<html>Hello</html>"), "can't be read", id="html"),
        pytest.param(Answer(200, b"\xff\xfe"), "can't be read", id="no-utf8"),
        pytest.param(Answer(200, b""), "can't be read", id="empty"),
        pytest.param(_document(layers=[_LAYER] * 128), "can't be read", id="128-layers"),
        pytest.param(_document(layers=[_LAYER, {**_LAYER, "size": 1}]), "two sizes", id="sizes"),
        pytest.param(_document(layers=[{**_LAYER, "size": -1}]), "can't be read", id="negative"),
        pytest.param(
            _document(layers=[{**_LAYER, "digest": "sha256:../../../etc/passwd"}]),
            "can't be read",
            id="path-as-digest",
        ),
        pytest.param(_document(layers=[_LAYER, _LAYER]), "other numbers of layers", id="number"),
        pytest.param(
            _document(schemaVersion=1, fsLayers=[]), "manifest of version 1", id="version-1"
        ),
        pytest.param(
            _document(config={**_CONFIG, "mediaType": "application/vnd.cncf.helm.config.v1+json"}),
            "no image but something else",
            id="chart",
        ),
        pytest.param(
            _document(config={**_CONFIG, "size": MAX_DOCUMENT + 1}), "config has more", id="config"
        ),
        pytest.param(
            _document(layers=[{**_LAYER, "mediaType": OCI_LAYER + "+gzip+encrypted"}]),
            "is encrypted",
            id="encrypted",
        ),
        pytest.param(
            _document(
                layers=[
                    {
                        **_LAYER,
                        "mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
                        "urls": ["https://example.org/layer"],
                    }
                ]
            ),
            "kept elsewhere",
            id="foreign",
        ),
        pytest.param(
            _document(layers=[{**_LAYER, "mediaType": OCI_LAYER + "+lzma"}]),
            "unknown kind",
            id="lzma",
        ),
        pytest.param(_document(manifests=[_ENTRY]), "an index and an image at once", id="both"),
        pytest.param(
            Answer(200, IMAGE.manifest, {"Content-Type": OCI_INDEX}),
            "another kind",
            id="other-kind",
        ),
        pytest.param(_index(*[_ENTRY] * 1025), "can't be read", id="1025-machines"),
        pytest.param(_index(), "not for linux/amd64; it is for nothing", id="no-machine"),
        pytest.param(
            _index({**_ENTRY, "size": _ENTRY["size"] + 1}), "bytes, not", id="size-of-manifest"
        ),
        pytest.param(
            _index({**_ENTRY, "size": MAX_DOCUMENT + 1}), "more than 4 MiB", id="size-of-big-one"
        ),
    ],
)
async def test_a_document_that_is_refused(
    server: Scripted, store: ImageStore, answer: Answer, message: str
) -> None:
    server.on(MANIFEST, answer)
    with pytest.raises(ImageInvalidError, match=message):
        await pulled(server, store)
    assert server.asked(BLOB) == []
    assert store.names() == []
    await require_pulled(server, store)


async def test_indexes_in_indexes_end_somewhere(server: Scripted, store: ImageStore) -> None:
    once = make_index({"linux/amd64": IMAGE})
    twice = make_index({"linux/amd64": once})
    thrice = make_index({"linux/amd64": twice})
    server.serve(thrice, "app", "3")
    server.serve(twice, "app", "2")
    with pytest.raises(ImageInvalidError, match="index of indexes of indexes"):
        await pulled(server, store, name="app:3")
    assert (await pulled(server, store, name="app:2")).digest == IMAGE.digest


async def test_an_endless_manifest(server: Scripted, store: ImageStore) -> None:
    server.on(MANIFEST, lambda request: chunked(itertools.repeat(b" " * 65536)))
    with pytest.raises(ImageInvalidError, match="more than 4 MiB"):
        await pulled(server, store)
    await require_pulled(server, store)


@pytest.mark.parametrize("place", ["manifest", "nested", "config"])
async def test_a_document_with_another_digest(
    server: Scripted, store: ImageStore, place: str
) -> None:
    """What the header says of it is of no interest."""
    other = IMAGE.manifest + b" " if place != "config" else IMAGE.blobs[CONFIG] + b" "
    wanted = CONFIG if place == "config" else IMAGE.digest
    kind = "blobs" if place == "config" else "manifests"
    header = {"Docker-Content-Digest": wanted, "Content-Type": IMAGE.media_type}
    server.on(f"/v2/app/{kind}/{wanted}", Answer(200, other, header))
    if place == "nested":
        server.on(MANIFEST, _index(_ENTRY))
    name = f"app@{IMAGE.digest}" if place == "manifest" else "app:1"
    with pytest.raises(ImageInvalidError, match=f"has the digest {digest_of(other)}, not {wanted}"):
        await pulled(server, store, name=name)
    assert store.names() == []
    server.serve(IMAGE, "app", "1")
    assert (await pulled(server, store, name=name)).digest == IMAGE.digest


async def test_a_lying_header_over_the_right_bytes(server: Scripted, store: ImageStore) -> None:
    header = {"Docker-Content-Digest": "sha256:" + "0" * 64, "Content-Type": IMAGE.media_type}
    server.on(MANIFEST, Answer(200, IMAGE.manifest, header))
    assert (await pulled(server, store)).digest == IMAGE.digest


# -- connections that break, stall, come to nothing ----------------------------------------------


async def test_cut_everywhere_and_gone_on_with(server: Scripted, store: ImageStore) -> None:
    def cut(request: Request) -> Answer:
        whole = ranged(CONTENT)(request)
        assert isinstance(whole, Answer)
        return replace(whole, cut=30_000)

    server.on(BLOB, cut)
    done = await pulled(server, store, PATIENT)
    assert done.downloaded_bytes == len(CONTENT)
    starts = [request.start for request in server.asked(BLOB)]
    assert starts == [number * 30_000 for number in range(len(starts))]
    assert store.blob_path(LAYER).read_bytes() == CONTENT


async def test_broken_off_for_good(server: Scripted, store: ImageStore) -> None:
    """The tries are counted; what has come stays for the next pull."""
    server.on(BLOB, lambda request: Answer(200, CONTENT, cut=0))
    with pytest.raises(RegistryError, match="broke off") as caught:
        await pulled(server, store)
    assert "what has come is kept" in str(caught.value.hint)
    assert len(server.asked(BLOB)) == QUICK.pace.tries
    await require_pulled(server, store)


@pytest.mark.parametrize(
    "said",
    ["", "bytes 0-9/10", f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}", "bytes x", "pages 1-2/3",
     f"bytes 30000-{len(CONTENT) - 1}/{len(CONTENT) + 1}", "bytes 30000-30001/*"],
)  # fmt: skip
async def test_a_range_that_is_another_starts_anew(
    server: Scripted, store: ImageStore, said: str
) -> None:
    wrong = Answer(206, CONTENT[30_000:], {"Content-Range": said} if said else {})
    server.on(BLOB, in_turn(Answer(200, CONTENT, cut=30_000), wrong, ranged(CONTENT)))
    assert (await pulled(server, store)).digest == IMAGE.digest
    assert [request.start for request in server.asked(BLOB)] == [0, 30_000, 0]
    assert store.blob_path(LAYER).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "count"), [(Answer(200, CONTENT), 2), (Answer(416, b""), 3)], ids=["200", "416"]
)
async def test_a_registry_without_ranges(
    server: Scripted, store: ImageStore, answer: Answer, count: int
) -> None:
    server.on(BLOB, in_turn(Answer(200, CONTENT, cut=30_000), answer, Answer(200, CONTENT)))
    assert (await pulled(server, store)).digest == IMAGE.digest
    assert len(server.asked(BLOB)) == count
    assert store.blob_path(LAYER).read_bytes() == CONTENT


async def test_a_beginning_that_was_spoiled_is_not_gone_on_with_for_ever(
    server: Scripted, store: ImageStore
) -> None:
    path = store.partial_path(LAYER)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"spoiled" * 1000)
    assert (await pulled(server, store)).digest == IMAGE.digest
    assert [request.start for request in server.asked(BLOB)] == [7000, 0]
    path.write_bytes(b"longer" * len(CONTENT))
    store.blob_path(LAYER).unlink()
    assert (await pulled(server, store)).digest == IMAGE.digest


STALL = replace(QUICK, pace=replace(QUICK.pace, stall=0.3, tries=2))


async def _silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("path", [BLOB, MANIFEST], ids=["blob", "manifest"])
@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(lambda r: _silence, id="silence"),
        pytest.param(lambda r: chunked(itertools.repeat(b"x"), pause=0.05), id="drip"),
    ],
)
async def test_one_that_all_but_stops(
    server: Scripted, store: ImageStore, path: str, handler: Handler
) -> None:
    server.on(path, handler)
    with pytest.raises(RegistryError, match="broke off"):
        await pulled(server, store, replace(STALL, pace=replace(STALL.pace, connect=0.2)))
    assert len(server.asked(path)) == 2
    await require_pulled(server, store)


async def test_a_head_without_end(server: Scripted, store: ImageStore) -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\n")
        while True:
            writer.write(b"X-Header: " + b"x" * 1000 + b"\r\n")
            await writer.drain()

    server.on(MANIFEST, lambda request: flood)
    with pytest.raises(RegistryError, match="broke off"):
        await pulled(server, store)
    await require_pulled(server, store)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
async def test_errors_that_pass(server: Scripted, store: ImageStore, status: int) -> None:
    page = Answer(status, b"<html>a page of the proxy</html>")
    good = Answer(200, IMAGE.manifest, {"Content-Type": IMAGE.media_type})
    server.on(MANIFEST, in_turn(page, page, good))
    server.on(BLOB, in_turn(page, ranged(CONTENT)))
    assert (await pulled(server, store)).digest == IMAGE.digest
    server.on(MANIFEST, page)
    with pytest.raises(RegistryError, match=f"answers {status}") as caught:
        await pulled(server, store)
    assert "html" not in str(caught.value)


async def test_too_many_requests(server: Scripted, store: ImageStore) -> None:
    soon = Answer(429, b"", {"Retry-After": "0"})
    server.on(BLOB, in_turn(soon, soon, ranged(CONTENT)))
    assert (await pulled(server, store)).digest == IMAGE.digest
    asked = len(server.asked(MANIFEST))
    server.on(MANIFEST, Answer(429, b'{"errors": [{"message": "slow"}]}', {"Retry-After": "3600"}))
    with pytest.raises(RateLimitedError, match="too many requests from here: slow") as caught:
        await pulled(server, store)
    assert caught.value.details["retry_after_seconds"] == 3600
    assert len(server.asked(MANIFEST)) == asked + 1


async def test_words_of_a_registry_are_bounded_and_harmless(
    server: Scripted, store: ImageStore
) -> None:
    words = "\x1b[2J\n" + "x" * 100_000
    body = json.dumps({"errors": [{"message": words[:9000]}]}).encode()
    server.on(MANIFEST, Answer(400, body))
    with pytest.raises(RegistryError, match="answers 400") as caught:
        await pulled(server, store)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


async def test_an_image_that_is_not_complete(server: Scripted, store: ImageStore) -> None:
    server.on(BLOB, Answer(404))
    with pytest.raises(RegistryError, match="though its manifest names it"):
        await pulled(server, store)
    await require_pulled(server, store)


async def test_refused_over_and_over(server: Scripted, store: ImageStore) -> None:
    bearer = f'Bearer realm="http://{server.address}/token",service="x"'
    server.on("/token", Answer(200, b'{"token": "abc"}'))
    server.on(MANIFEST, Answer(401, b"", {"WWW-Authenticate": bearer}))
    with pytest.raises(RegistryDeniedError):
        await pulled(server, store)
    assert (len(server.asked(MANIFEST)), len(server.asked("/token"))) == (2, 1)
    await require_pulled(server, store)
