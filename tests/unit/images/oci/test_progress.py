"""The sum over a pull's events."""

from __future__ import annotations

from agentkernel.images.oci.progress import Overall, PullProgress

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


def test_what_is_to_be_fetched_is_known_before_anything_comes() -> None:
    overall = Overall()
    for event in (
        PullProgress(A, "present", 50, 50),
        PullProgress(B, "waiting", 0, 100),
        PullProgress(C, "waiting", 0, 7),
    ):
        overall.add(event)
    assert (overall.fetched, overall.to_fetch) == (0, 107)


def test_bytes_count_until_a_layer_is_unpacked() -> None:
    overall = Overall()
    overall.add(PullProgress(B, "fetching", 40, 100))
    overall.add(PullProgress(C, "fetched", 7, 7))
    assert (overall.fetched, overall.to_fetch) == (47, 107)
    overall.add(PullProgress(C, "unpacking", 1, 7))
    assert overall.fetched == 47
    assert [event.state for event in overall.layers] == ["fetching", "unpacking"]


def test_an_event_as_a_stream_has_it() -> None:
    event = PullProgress(A, "fetching", 1, 2)
    assert event.short == "a" * 12
    assert event.to_dict() == {"layer": A, "state": "fetching", "done": 1, "total": 2}
