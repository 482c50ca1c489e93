"""`run` of stored images: entrypoint and command as Docker has them; `exec` knows neither."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkernel.images.oci.store import ImageStore

from ..oci_images import busybox_image
from .daemon_process import Daemon

ENTRY = ["/bin/echo", "entry"]


@pytest.fixture(scope="module")
def images(shared_daemon: Daemon) -> None:
    store = ImageStore(shared_daemon.state_dir / "images")
    busybox_image(store, "both", Entrypoint=ENTRY, Cmd=["own", "words"], WorkingDir="/w")
    busybox_image(store, "only-command", Cmd=["/bin/echo", "own"])
    busybox_image(store, "neither")


def run(daemon: Daemon, **body: Any) -> Any:
    status, answer = daemon.request("POST", "/v1/run", body)
    assert status == 200, answer
    return answer["stdout"] or answer["stderr"]


@pytest.mark.usefixtures("images")
def test_entrypoint_and_command(daemon: Daemon) -> None:
    assert run(daemon, image="both") == "entry own words\n"
    assert run(daemon, image="both", argv=[]) == "entry own words\n"
    assert run(daemon, image="both", argv=["mine"]) == "entry mine\n"
    assert run(daemon, image="only-command") == "own\n"
    assert run(daemon, image="only-command", argv=["/bin/echo", "mine"]) == "mine\n"
    # An entrypoint of the caller's takes the image's command away.
    assert run(daemon, image="both", entrypoint=["/bin/echo", "other"]) == "other\n"
    assert run(daemon, image="both", entrypoint=[], argv=["/bin/echo", "bare"]) == "bare\n"
    # What is for a shell is for a shell.
    assert run(daemon, image="both", shell="echo $0; pwd") == "sh\n/w\n"


@pytest.mark.usefixtures("images")
def test_nothing_to_run(daemon: Daemon) -> None:
    bodies: list[dict[str, Any]] = [
        *({"image": "neither"}, {"image": "both", "entrypoint": []}, {}, {"argv": []})
    ]
    for body in bodies:
        status, answer = daemon.request("POST", "/v1/run", body)
        assert (status, answer["code"]) == (400, "invalid_input"), body
    assert daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"] == []


@pytest.mark.usefixtures("images")
def test_streams_events_and_batches_say_the_same(daemon: Daemon) -> None:
    command: dict[str, Any] = {"spec": {"image": "both"}, "commands": [{}, {"argv": ["mine"]}]}
    status, answer = daemon.request("POST", "/v1/run/batch", command)
    assert status == 200, answer
    outputs = [entry["result"]["stdout"] for entry in answer["results"]]
    assert outputs == ["entry own words\n", "entry mine\n"]


@pytest.mark.usefixtures("images")
def test_exec_knows_no_entrypoint(daemon: Daemon) -> None:
    id = daemon.create(image="both", ephemeral=True)
    status, answer = daemon.request("POST", f"/v1/sandboxes/{id}/exec", {"argv": ["pwd"]})
    assert (status, answer["stdout"]) == (200, "/w\n")
    status, answer = daemon.request("POST", f"/v1/sandboxes/{id}/exec", {"argv": []})
    assert status == 400
    shown = daemon.request("GET", f"/v1/sandboxes/{id}")[1]
    assert shown["image"].startswith("docker.io/library/both:latest@sha256:")
    assert shown["user"] == "root"
    assert json.dumps(shown["effective"]).count("docker.io/library/both") == 1
    daemon.request("DELETE", f"/v1/sandboxes/{id}")


@pytest.mark.usefixtures("images")
def test_an_image_that_can_not_be_had(daemon: Daemon) -> None:
    body = {"image": "localhost:1/nothing", "argv": ["true"], "pull": "never"}
    status, answer = daemon.request("POST", "/v1/run", body)
    assert (status, answer["code"]) == (404, "not_found")
    assert "image pull" in answer["hint"]
