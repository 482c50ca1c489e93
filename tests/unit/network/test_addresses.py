"""Which addresses may be dialled, and what a rule has to say for those that are not public."""

from __future__ import annotations

import errno
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.network.policy import addresses
from agentkernel.network.policy.addresses import special_range, vet
from agentkernel.network.policy.names import parse_address

NEVER = [
    "0.0.0.0", "0.1.2.3", "192.0.0.8", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.88.99.1",
    "::", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::8.8.8.8", "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:808:808::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "100::1",
    "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:a00:1", "ff02::1", "4000::1", "1::1", "5f00::1",
]  # fmt: skip
PRIVATE = ["10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "100.64.0.1", "198.18.0.1",
           "fc00::1", "fd12:3456::1", "fec0::1", "192.0.2.1", "198.51.100.1", "203.0.113.1",
           "2001:db8::1", "3fff::1"]  # fmt: skip
METADATA = ["169.254.169.254", "169.254.170.2", "169.254.1.1", "100.100.100.200", "168.63.129.16",
            "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fe80::1"]  # fmt: skip
LOOPBACK = ["127.0.0.1", "127.0.0.53", "127.255.255.254", "::1"]
PUBLIC = ["8.8.8.8", "1.1.1.1", "9.255.255.255", "11.0.0.0", "172.15.255.255", "172.32.0.0",
          "100.63.255.255", "100.128.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
          "2606:4700:4700::1111", "2a00:1450::1"]  # fmt: skip


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two addresses, whatever this one has."""
    mine = frozenset([IPv4Address("8.8.4.4"), IPv6Address("fd99::2"), IPv4Address("10.9.9.9")])
    monkeypatch.setattr(addresses, "own_addresses", lambda: mine)


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_need_no_rule_of_their_own(text: str) -> None:
    assert vet(parse_address(text), False, False) is None


@pytest.mark.parametrize("text", NEVER)
def test_some_are_never_dialled(text: str) -> None:
    assert vet(parse_address(text), False, False)
    assert vet(parse_address(text), True, True, exact=True)


@pytest.mark.parametrize("text", PRIVATE)
def test_private_ones_need_a_rule_that_says_so(text: str) -> None:
    assert vet(parse_address(text), False, True, exact=True)
    assert vet(parse_address(text), True, False) is None


@pytest.mark.parametrize("text", METADATA)
def test_metadata_needs_a_rule_for_just_that_address(text: str) -> None:
    assert vet(parse_address(text), False, False, exact=True)
    assert "just this address" in str(vet(parse_address(text), True, True))
    assert vet(parse_address(text), True, False, exact=True) is None


@pytest.mark.parametrize("text", [*LOOPBACK, "8.8.4.4", "fd99::2", "10.9.9.9"])
def test_this_machine_needs_a_rule_with_a_port(text: str) -> None:
    assert vet(parse_address(text), False, False)
    assert vet(parse_address(text), False, True)
    assert "with a port" in str(vet(parse_address(text), True, False, exact=True))
    assert vet(parse_address(text), True, True) is None


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_ours_is_never_wider_than_the_registry_of_special_addresses(address: IPv4Address) -> None:
    if not address.is_global and address not in ip_network("192.88.99.0/24"):
        assert vet(address, False, False)


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_the_same_for_the_longer_ones(address: IPv6Address) -> None:
    if not address.is_global:
        assert vet(address, False, False)


def test_a_range_is_special_as_a_whole_or_not_at_all() -> None:
    kinds = {
        "10.1.0.0/16": "private",
        "127.0.0.0/8": "loopback",
        "169.254.169.254/32": "metadata",
        "169.254.0.0/16": "metadata",
        "fd00::/8": "private",
        "224.0.0.0/8": "never",
    }
    for text, kind in kinds.items():
        found = special_range(ip_network(text))
        assert found is not None and found.kind == kind
    for text in ("0.0.0.0/0", "8.0.0.0/5", "8.8.8.0/24", "::/0", "2000::/3"):
        assert special_range(ip_network(text)) is None


def test_the_machines_own_addresses_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = addresses.own_addresses()
    assert IPv4Address("127.0.0.1") in found
    assert addresses.own_addresses() is found  # not read again within a second


def test_what_the_kernel_writes_is_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    trie = tmp_path / "fib_trie"
    trie.write_text(
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n"
        "Local:\n     +-- 127.0.0.0/31 1 0 0\n           |-- 127.0.0.0\n"
        "              /8 host LOCAL\n           |-- 127.0.0.1\n              /32 host LOCAL\n"
        "        |-- 192.168.7.255\n           /32 link BROADCAST\n"
        "        |-- 192.168.7.2\n           /24 link UNICAST\n           /32 host LOCAL\n"
    )
    inet6 = tmp_path / "if_inet6"
    inet6.write_text("fd000000000000000000000000000002 02 40 00 80     eth0\n")
    monkeypatch.setattr(addresses, "_FIB", str(trie))
    monkeypatch.setattr(addresses, "_INET6", str(inet6))
    monkeypatch.setattr(addresses, "_own", (float("-inf"), frozenset()))
    assert addresses.own_addresses() == {
        IPv4Address("127.0.0.1"), IPv4Address("192.168.7.2"), IPv6Address("fd00::2")
    }  # fmt: skip
    monkeypatch.setattr(addresses, "_INET6", str(tmp_path / "none"))
    monkeypatch.setattr(addresses, "_own", (float("-inf"), frozenset()))
    assert len(addresses.own_addresses()) == 2


def test_not_knowing_ones_own_means_no(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> frozenset[object]:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(addresses, "own_addresses", fails)
    assert "can't be read" in str(vet(parse_address("8.8.8.8"), True, True, exact=True))
