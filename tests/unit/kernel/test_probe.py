"""The probe without a sandbox: both lists are the same, reports are hostile, judgements hold."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.backends.base import THROUGH_GATEWAY, Blueprint, EffectiveLine, VolumeMount
from agentkernel.backends.registry import backend_names
from agentkernel.errors import GuestProtocolError
from agentkernel.guest.binary import agentd_path
from agentkernel.kernel.probe.catalogue import CATALOGUE, FAMILIES, GROUPS
from agentkernel.kernel.probe.engines import ENGINES
from agentkernel.kernel.probe.findings import ProbeFinding
from agentkernel.kernel.probe.judge import judge
from agentkernel.kernel.probe.report import MAX_REPORT_BYTES, Seen, parse_report
from agentkernel.kernel.probe.rules import HostFacts
from agentkernel.kernel.spec import SandboxSpec, expand

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("a.one", "a.two")
ANSWERS = st.one_of(
    st.sampled_from(["ok", "none", "timeout", "EPERM", "ENOSYS", "SIGSYS", "SIGSEGV", "EINVAL"]),
    st.text(max_size=8),
)


def blueprint(**fields: object) -> Blueprint:
    return expand(SandboxSpec(**fields), owned=True)  # type: ignore[arg-type]


def line(name: str, answer: str = "ok", values: object = ()) -> bytes:
    return json.dumps({"try": name, "answer": answer, "values": values}).encode() + b"\n"


def findings(
    answers: Mapping[str, Seen],
    *,
    user: str = "root",
    engine: str = "native",
    host: HostFacts | None = None,
    effective: tuple[EffectiveLine, ...] = (),
    **fields: object,
) -> dict[str, ProbeFinding]:
    """What is found if everything is refused but `answers`."""
    made = blueprint(**fields)
    report = {name: Seen("EPERM") for name in CATALOGUE} | dict(answers)
    result = judge({user: report}, made, engine=engine, host=host, effective=effective)
    return {finding.name: finding for finding in result.findings}


@pytest.mark.parametrize("engine", ["native", "gvisor"])
def test_volumes_are_meant_and_nothing_else(engine: str) -> None:
    made = msgspec.structs.replace(
        blueprint(),
        volumes=(
            VolumeMount(id="a" * 20, name="a", path="/a b"),
            VolumeMount(id="b" * 20, name="b", path="/ro", read_only=True),
        ),
    )
    kind = "9p" if engine == "gvisor" else "ext4"

    def found(name: str, *values: str) -> ProbeFinding:
        report = {entry: Seen("EPERM") for entry in CATALOGUE} | {name: Seen("ok", values)}
        result = judge({"root": report}, made, engine=engine)
        return {finding.name: finding for finding in result.findings}[name]

    place = "/state/volumes/x/data /dev/vda rw"
    shown = found("mount.host_paths", f"/a\\040b {kind} {place}", f"/ro {kind} {place}")
    assert shown.state == "open" and shown.expected and "volumes" in (shown.reason or "")
    assert not found("mount.host_paths", f"/other {kind} {place}").expected
    assert found("mount.writable", f"/a\\040b {kind}").expected
    for other in ("/ro", "/other", "/a"):
        assert not found("mount.writable", f"{other} {kind}").expected, other


def test_both_sides_have_the_same_list() -> None:
    said = subprocess.run(
        [agentd_path(), "probe", "--list"], capture_output=True, text=True, timeout=20, check=True
    )
    names = said.stdout.split()
    assert len(names) == len(set(names))
    assert set(names) == CATALOGUE.keys()


def test_the_catalogue_is_complete() -> None:
    assert len(FAMILIES) == len(set(FAMILIES)) == 46
    assert {name.partition(".")[0] for name in CATALOGUE} == GROUPS.keys()
    assert all(entry.opens for entry in CATALOGUE.values())


def test_a_good_report() -> None:
    data = line("a.one", "errno 1") + line("a.two", "signal 31", ["x\x1b[31m", "y"])
    report = parse_report(data, NAMES)
    assert report == {"a.one": Seen("EPERM"), "a.two": Seen("SIGSYS", ("x?[31m", "y"))}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "ends too early"),
        (line("a.one"), "a.two is missing"),
        (line("a.one") + line("a.two") + line("a.one"), "a.one twice"),
        (line("a.one") + line("a.two") + line("a.three"), "does not exist"),
        (line("a.one", "fine") + line("a.two"), "no try gives"),
        (line("a.one", "errno 99999") + line("a.two"), "no try gives"),
        (line("a.one", "errno -1") + line("a.two"), "no try gives"),
        (line("a.one", values="text") + line("a.two"), "none of a probe's"),
        (line("a.one", values=[1]) + line("a.two"), "none of a probe's"),
        (line("a.one", values=["x" * 10_000]) + line("a.two"), "none of a probe's"),
        (b'{"try": "a.one", "answer": "ok", "values": [], "more": 1}\n', "none of a probe's"),
        (b"\xff\xfe\n" + line("a.one"), "none of a probe's"),
        (b"[" * 100_000 + b"\n", "none of a probe's"),
        (b"{}\n", "none of a probe's"),
        (b'"' + b"x" * 200_000 + b"\n", "too long"),
        (b"\n" * (MAX_REPORT_BYTES + 1), "too long"),
    ],
)
def test_bad_reports_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(GuestProtocolError, match=words):
        parse_report(data, NAMES)


@given(st.binary(max_size=2000))
def test_no_bytes_do_anything_else(data: bytes) -> None:
    with pytest.raises(GuestProtocolError):
        parse_report(data, NAMES)


@pytest.mark.parametrize("engine", ["native", "gvisor"])
@settings(max_examples=25)
@given(data=st.data())
def test_no_answer_breaks_a_rule(engine: str, data: st.DataObject) -> None:
    """A guest can say anything: every rule has an answer, and none of them is a traceback."""
    values = st.lists(st.text(max_size=12), max_size=3).map(tuple)
    report = {name: Seen(data.draw(ANSWERS), data.draw(values)) for name in CATALOGUE}
    made = blueprint(profile="restrictive")
    result = judge({"root": report, "user": report}, made, engine=engine)
    assert len(result.findings) == len(CATALOGUE)
    assert result.fit is all(finding.expected for finding in result.findings)


@pytest.mark.parametrize("answer", ["timeout", "SIGSEGV", "signal 40"])
def test_what_is_not_answered_is_unknown_and_not_fit(answer: str) -> None:
    for name in ("call.mount", "proc.kcore", "identity.uid_map", "mount.suid", "socket.vsock"):
        finding = findings({name: Seen(answer)})[name]
        assert (finding.state, finding.expected) == ("unknown", False), name


def test_nothing_reported_is_not_fit() -> None:
    assert judge({}, blueprint()).fit is False


def test_profiles_mean_different_things_to_be_open() -> None:
    opened = {"call.chroot": Seen("ok"), "call.ptrace": Seen("ok"), "call.modify_ldt": Seen("ok")}
    expected = {
        profile: [found[name].expected for name in opened]
        for profile in ("permissive", "moderate", "restrictive")
        for found in [findings(opened, profile=profile)]
    }
    assert expected == {
        "permissive": [True, True, True],
        "moderate": [True, True, False],
        "restrictive": [False, False, False],
    }
    assert not findings(opened, user="user")["call.chroot"].expected, "of another user never"
    reason = findings(opened)["call.chroot"].reason
    assert reason == "by the profile: CAP_SYS_CHROOT in the guest's own user namespace"


def test_nested_user_namespaces_are_open_if_asked_for() -> None:
    opened = {"call.unshare_user": Seen("ok"), "call.unshare_mnt": Seen("ok")}
    assert not findings(opened)["call.unshare_user"].expected
    asked = findings(opened, nested_userns=True)
    assert asked["call.unshare_user"].expected
    assert not asked["call.unshare_mnt"].expected


def test_capabilities_beyond_the_profile_are_named() -> None:
    mine = findings({"identity.effective": Seen("ok", ("800404fb",))})["identity.effective"]
    assert mine.expected and "CAP_CHOWN" in mine.detail
    more = findings({"identity.effective": Seen("ok", ("802404fb",))})["identity.effective"]
    assert (more.expected, more.detail) == (False, "CAP_SYS_ADMIN")
    for mask in ("fffffffffffffffff", "-1", "x", ""):
        found = findings({"identity.bounding": Seen("ok", (mask,))})["identity.bounding"]
        assert not found.expected, mask


def test_what_the_host_has_is_compared() -> None:
    host = HostFacts(
        uid=1000, namespaces={"pid": "pid:[1]"}, boot_id="b", hostname="h", uid_map="0 1000 1\n"
    )
    report = {name: Seen("EPERM") for name in CATALOGUE} | {
        "namespace.pid": Seen("ok", ("pid:[1]",)),
        "machine.boot_id": Seen("ok", ("b",)),
        "machine.hostname": Seen("ok", ("h",)),
        "identity.uid_map": Seen("ok", ("0 0 1",)),
    }
    ids = EffectiveLine("ids", "one: uid 1000", "user namespace")
    made = blueprint()
    result = judge({"root": report}, made, effective=[ids], host=host)
    found = {finding.name: finding for finding in result.findings}
    for name in ("namespace.pid", "machine.boot_id", "machine.hostname"):
        assert (found[name].state, found[name].expected) == ("open", False), name
    assert found["identity.uid_map"].reason == "by its ids: one: uid 1000"
    root = HostFacts(uid=0, uid_map="0 0 65536\n")
    worse = judge({"root": report}, made, host=root).findings
    assert next(f for f in worse if f.name == "identity.uid_map").reason is None


def test_a_default_that_is_not_enforced_is_open_and_said() -> None:
    line = EffectiveLine("memory", "4 GiB", "not enforced: no control group")
    report = {name: Seen("EPERM") for name in CATALOGUE} | {"limit.memory": Seen("none")}

    def memory(*effective: EffectiveLine) -> ProbeFinding:
        result = judge({"root": report}, blueprint(), effective=effective)
        return next(f for f in result.findings if f.name == "limit.memory")

    said = memory(line)
    assert (said.state, said.expected) == ("open", True)
    assert said.reason == "not enforced: no control group; `info` says so"
    assert memory(EffectiveLine("memory", "4 GiB", "control group")).state == "closed"
    assert not memory().expected, "nobody says anything of it"


def test_the_worst_of_all_users_counts() -> None:
    good = {name: Seen("EPERM") for name in CATALOGUE}
    bad = good | {"call.bpf": Seen("ok")}
    result = judge({"root": good, "user": bad}, blueprint())
    finding = next(f for f in result.findings if f.name == "call.bpf")
    assert (finding.expected, finding.answers) == (False, {"root": "EPERM", "user": "ok"})
    assert not result.fit


def test_the_page_has_every_try() -> None:
    page = (ROOT / "docs/reference/probe.md").read_text()
    table = page.partition("## Tries")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z0-9_.]+)` \| (.+) \|$", table, re.MULTILINE)
    assert dict(rows) == {entry.name: entry.opens for entry in CATALOGUE.values()}
    assert f"{len(CATALOGUE)} tries" in (ROOT / "docs/concepts/isolation.md").read_text()


def test_every_engine_has_a_table_and_the_page_has_its_tries() -> None:
    assert ENGINES.keys() == set(backend_names())
    page = (ROOT / "docs/reference/probe.md").read_text()
    for name, engine in ENGINES.items():
        assert engine.rules.keys() <= CATALOGUE.keys(), name
    table = page.partition("## gVisor")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z]+\.[a-z0-9_]+)`", table)) == ENGINES["gvisor"].rules.keys()


def test_a_reason_of_one_engine_is_none_of_another() -> None:
    """What the sentry shows of itself would be the machine's where there is no sentry."""
    opened = {
        "proc.cmdline": Seen("ok"),
        "agent.oom_score": Seen("ok"),
        "mount.suid": Seen("ok", ("/",)),
        "mount.writable": Seen("ok", ("/ 9p",)),
        "proc.sys_writable": Seen("ok", ("/proc/sys/kernel/sem",)),
        "device.fuse": Seen("ok"),
    }
    for engine in backend_names():
        found = findings(opened, engine=engine)
        for name in opened:
            assert found[name].state == "open", (engine, name)
            assert found[name].expected is (engine == "gvisor"), (engine, name)
    assert not findings({"proc.kcore": Seen("ok")}, engine="gvisor")["proc.kcore"].expected


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("mount.suid", ("/", "/tmp")),
        ("mount.writable", ("/ 9p", "/mnt 9p")),
        ("device.nodes", ("/dev/null c 1:3", "/dev/kvm c 10:232")),
        ("network.unix_names", ("/run/agentkernel/socket/s", "/run/docker.sock")),
    ],
)
def test_more_than_the_engine_has_is_a_finding(name: str, values: tuple[str, ...]) -> None:
    found = findings({name: Seen("ok", values)}, engine="gvisor")[name]
    assert (found.state, found.expected) == ("open", False)
    assert values[-1].split()[0] in found.detail
    fewer = findings({name: Seen("ok", values[:-1])}, engine="gvisor")[name]
    assert fewer.expected, "control: without it"


@pytest.mark.parametrize("engine", backend_names())
def test_a_way_out_leads_to_the_gateway_and_nowhere_else(engine: str) -> None:
    through = (EffectiveLine("network", THROUGH_GATEWAY, "nftables"),)
    routed = {
        "network.routes": Seen("ok", ("lo 00000000",)),
        "network.route_out": Seen("ok"),
        "network.metadata": Seen("ok"),
    }
    found = findings(routed, engine=engine, effective=through)
    assert all(found[name].expected and found[name].state == "open" for name in routed)
    without = findings(routed, engine=engine)
    assert not any(without[name].expected for name in routed), "control: loopback only"

    past = {
        "network.routes": Seen("ok", ("lo 00000000", "eth0 00000000")),
        "network.interfaces": Seen("ok", ("eth0",)),
        "network.route_out6": Seen("ok"),
        "network.datagram_out": Seen("ok"),
        "network.gateway_dial": Seen("ok"),
        "network.gateway_bind": Seen("ok"),
        "network.host_tcp": Seen("ok"),
    }
    found = findings(past, engine=engine, effective=through)
    assert not any(found[name].expected for name in past)


def test_a_sentry_s_ids_are_those_of_the_process_outside() -> None:
    """Inside there is every id; what they are on the machine, the machine says."""
    said = {"identity.uid_map": Seen("ok", ("0 0 4294967295",))}

    def uid_map(host: HostFacts, engine: str = "gvisor") -> tuple[str, bool]:
        found = findings(said, engine=engine, host=host)["identity.uid_map"]
        return found.state, found.expected

    assert uid_map(HostFacts(uid_map="0 1879048192 65536")) == ("closed", True)
    assert uid_map(HostFacts(uid_map="0 0 4294967295")) == ("open", False)
    assert uid_map(HostFacts()) == ("unknown", False)
    assert uid_map(HostFacts(uid_map="0 1879048192 65536"), "native") == ("open", False)


def test_an_engine_says_where_rights_and_sockets_are() -> None:
    opened = {"call.chroot": Seen("ok"), "socket.inet": Seen("ok")}
    found = findings(opened, engine="gvisor")
    assert found["call.chroot"].reason == "by the profile: CAP_SYS_CHROOT in the sentry alone"
    assert "sentry" in (found["socket.inet"].reason or "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [("agentd", True), ("agentd        ", True), ("agentd --token x", False), (" agentd", False)],
)
def test_agentd_s_command_line_is_its_name(line: str, expected: bool) -> None:
    found = findings({"agent.command_line": Seen("ok", (line,))})["agent.command_line"]
    assert found.expected is expected


def test_paths_of_the_machine_in_the_mount_table() -> None:
    def found(*values: str) -> ProbeFinding:
        return findings({"mount.host_paths": Seen("ok", values)})["mount.host_paths"]

    assert found("/opt/tools ext4 /opt/tools /dev/vda rw").expected, "a toolchain's own path"
    for value in (
        "/ ext4 /home/me/rootfs /dev/vda rw",
        "/ ext4 / /dev/vda rw",
        "/ overlay / overlay rw,lowerdir=/home/me",
    ):
        assert not found(value).expected, value
    assert not found("").expected and not found("a b c d e f").expected


@pytest.mark.parametrize(
    ("values", "state"), [(("200", "0"), "closed"), (("0", "0"), "open"), (("x",), "open")]
)
def test_agentd_is_the_last_the_oom_killer_takes(values: tuple[str, ...], state: str) -> None:
    assert findings({"limit.oom_order": Seen("ok", values)})["limit.oom_order"].state == state
