"""Cases as scenarios: the same packets and the same replies as in the fuzzer."""

from pathlib import Path
from random import Random

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.exchange import Expected
from rdmawire.fuzz.inputs import Case, Input, PacketInput, ReceiveInput, WaitInput
from rdmawire.fuzz.oracle import Mismatch, Session, violation
from rdmawire.fuzz.replay_scenario import scenario_text
from rdmawire.fuzz.responder_inputs import ResponderInputs, random_setup
from rdmawire.fuzz.setup import Network, Setup
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import Outcome, play
from rdmawire.verbs.enums import QPType
from rdmawire.wire.ib import BTH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import LAYOUTS
from tests.fuzz.parameters import slow
from tests.fuzz.planted import SHORT_WRITES

CLIENT = bytes.fromhex("020000000001")
MEMORY = {"reth": 12, "atomiceth": 12, "ieth": 4, "xrceth": 4}
"""Bytes of address, key or queue at the start of headers: they differ between hosts."""


PLAYED = (Network.ROCE2_IPV4, Network.ROCE2_IPV6, Network.ROCE1)


def random_case(
    seed: object, session: Session, inputs: int = 40, service: QPType = QPType.RC
) -> Case:
    """A case of random inputs; the session has played it."""
    random = Random(f"replay {seed}")
    setup = random_setup(random, service)
    while setup.network not in PLAYED:
        setup = random_setup(random, service)
    session.begin(setup)
    generator = ResponderInputs(random, session.model)
    played: list[Input] = []
    while len(played) < inputs:
        one = generator.next() if random.random() < 0.95 else WaitInput(random.randrange(10**6))
        played.append(one)
        assert session.play(one) is None
        if session.model.failed and random.random() < 0.3:
            break
    return Case(setup, tuple(played))


def outcome_of(text: str, path: Path, rules: Rules = STANDARD) -> tuple[Outcome, list[bytes]]:
    outcome = play(read_scenario_text(text), capture=path, rules={"server": rules})
    with open_capture(path) as capture:
        return outcome, [bytes(record.data) for record in capture]


def comparable(frame: bytes) -> bytes:
    """A frame without what two hosts number themselves: QPNs of replies, addresses, keys, ICRC."""
    start = {b"\x86\xdd": 62, b"\x89\x15": 54}.get(frame[12:14], 42)
    packet = bytearray(frame[start:-4])
    if frame[6:12] != CLIENT and len(packet) >= BTH.SIZE:
        packet[5:8] = bytes(3)
    place = BTH.SIZE
    layout = LAYOUTS.get(packet[0]) if packet else None
    for table in layout.headers if layout else ():
        length = MEMORY.get(table.label, 0)
        if place + table.SIZE <= len(packet):
            packet[place : place + length] = bytes(length)
        place += table.SIZE
    return frame[:14] + bytes(packet)


@pytest.mark.parametrize("seed", [*range(15), *slow(range(15, 40))])
def test_a_scenario_sends_what_the_fuzzer_sends(seed: int, tmp_path: Path) -> None:
    session = Session(EngineTarget())
    session.recording = True
    case = random_case(seed, session)
    fuzzed = [comparable(frame) for _, frame in session.frames]
    text = scenario_text(case)
    outcome, frames = outcome_of(text, tmp_path / "played.pcap")
    assert [comparable(frame) for frame in frames] == fuzzed, text
    assert [failure.text("case") for failure in outcome.failures] == [], text
    assert outcome.testbed.endpoints["a"][0].peer.qp.qp_num == 0x11


@pytest.mark.parametrize("seed", [*range(4), *slow(range(4, 12))])
@pytest.mark.parametrize("service", [QPType.UC, QPType.UD, QPType.XRC_TGT])
def test_scenarios_of_other_services_send_the_same(
    service: QPType, seed: int, tmp_path: Path
) -> None:
    session = Session(EngineTarget())
    session.recording = True
    case = random_case(f"{service.name} {seed}", session, service=service)
    try:
        text = scenario_text(case)
    except FuzzError as error:
        assert "an XRC target cannot bind its window" in str(error)  # noqa: PT017
        return
    outcome, frames = outcome_of(text, tmp_path / "played.pcap")
    fuzzed = [comparable(frame) for _, frame in session.frames]
    assert [comparable(frame) for frame in frames] == fuzzed, text
    assert [failure.text("case") for failure in outcome.failures] == [], text


WRITE = PacketInput(Opcode.RC_RDMA_WRITE_ONLY, length=13, offset=8, seed=3)
WINDOW_WRITE = PacketInput(Opcode.XRC_RDMA_WRITE_ONLY, region=3, length=8)
UNUSUAL = {
    "an added header": PacketInput(Opcode.RC_SEND_ONLY, length=5, extra=("immdt",), value=7),
    "a header twice": PacketInput(Opcode.RC_RDMA_WRITE_ONLY, length=5, extra=("reth",)),
    "a header left out": PacketInput(Opcode.RC_RDMA_WRITE_ONLY, length=5, extra=("-reth",)),
    "a header left out and added": PacketInput(
        Opcode.RC_RDMA_WRITE_ONLY, length=5, extra=("-reth", "reth"), fields=(("reth.dmalen", 3),)
    ),
    "two headers added": PacketInput(Opcode.RC_SEND_ONLY, length=6, extra=("reth", "deth")),
    "a cut": PacketInput(Opcode.RC_SEND_ONLY, length=7, cut=5),
    "a cut of all": PacketInput(Opcode.RC_SEND_ONLY, length=7, cut=9),
    "a wrong pad count": PacketInput(Opcode.RC_SEND_ONLY, length=7, fields=(("bth.padcnt", 3),)),
    "addresses": PacketInput(
        Opcode.RC_SEND_ONLY,
        fields=(("ip.src", 0x0A000009), ("eth.src", 9), ("ip.addr", 0x0A000001)),
    ),
    "a field of another network": PacketInput(Opcode.RC_SEND_ONLY, fields=(("ipv6.hop_limit", 3),)),
    "a value that is too great": PacketInput(Opcode.RC_SEND_ONLY, fields=(("bth.tver", 17),)),
    "an address below zero": PacketInput(Opcode.RC_FETCH_ADD, offset=-(1 << 40), value=5),
    "an address of 64 bits": PacketInput(Opcode.RC_RDMA_READ_REQUEST, offset=1 << 63, dmalen=3),
    "a key of another region": PacketInput(Opcode.RC_RDMA_READ_REQUEST, key=0x100, dmalen=3),
    "no bytes": PacketInput(Opcode.RC_RDMA_READ_REQUEST, dmalen=0, offset=5),
    "the window": PacketInput(Opcode.RC_RDMA_WRITE_ONLY, region=3, length=256),
    "a key beside the window": PacketInput(Opcode.RC_RDMA_WRITE_ONLY, region=3, key=-1, length=8),
    "a stale ICRC": PacketInput(
        Opcode.RC_RDMA_WRITE_ONLY, length=4, fields=(("bth.se", 1),), checksum="STALE"
    ),
    "a stale ICRC that is right": PacketInput(
        Opcode.RC_RDMA_WRITE_ONLY, length=4, fields=(("ip.ttl", 1),), checksum="STALE"
    ),
    "a broken ICRC": PacketInput(Opcode.RC_RDMA_WRITE_ONLY, length=4, checksum="BROKEN"),
    "a reserved opcode": PacketInput(0x1D, length=3),
    "an opcode of a vendor": PacketInput(0xC3, length=3),
    "a datagram": PacketInput(Opcode.UD_SEND_ONLY_WITH_IMMEDIATE, value=3),
    "a response": PacketInput(Opcode.RC_ATOMIC_ACKNOWLEDGE, value=0x6F, compare=12345),
    "a FLUSH": PacketInput(Opcode.RC_FLUSH, dmalen=64, value=3, compare=1),
    "a PSN far ahead": PacketInput(Opcode.RC_SEND_ONLY, ahead=1 << 23),
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("network", PLAYED)
def test_unusual_packets_are_the_same(name: str, network: Network, tmp_path: Path) -> None:
    session = Session(EngineTarget())
    session.recording = True
    case = Case(Setup(network=network, psn=0), (ReceiveInput(64), UNUSUAL[name], WRITE))
    session.begin(case.setup)
    assert [session.play(one) for one in case.inputs] == [None] * 3
    outcome, frames = outcome_of(scenario_text(case), tmp_path / "played.pcap")
    assert [comparable(frame) for frame in frames] == [comparable(one) for _, one in session.frames]
    assert outcome.passed, scenario_text(case)


def test_a_planted_bug_fails_the_scenario(tmp_path: Path) -> None:
    """A WRITE with less than it announced, which the target accepts."""
    inputs = (
        PacketInput(Opcode.RC_RDMA_WRITE_FIRST, length=256, dmalen=300),
        PacketInput(Opcode.RC_RDMA_WRITE_LAST, length=4),
    )
    case = Case(Setup(), inputs)
    session = Session(EngineTarget(rules=SHORT_WRITES))
    session.begin(case.setup)
    first, second = (session.play(one) for one in inputs)
    assert first is None
    assert second is not None
    text = scenario_text(case, violation(1, inputs[1], second), bug="short-writes")
    assert "# 2. RC_RDMA_WRITE_LAST, PSN expected, 4 bytes" in text
    assert "Run it with: rdmawire run --bug server=short-writes FILE." in " ".join(text.split())
    healthy, _ = outcome_of(text, tmp_path / "healthy.pcap")
    assert healthy.passed
    broken, _ = outcome_of(text, tmp_path / "broken.pcap", SHORT_WRITES)
    found = [failure.what for failure in broken.failures]
    assert "state of server/a" in found


def test_receives_end_as_the_standard_requires() -> None:
    inputs = (
        ReceiveInput(8),
        ReceiveInput(8),
        PacketInput(Opcode.RC_SEND_ONLY, length=8),
        PacketInput(Opcode.RC_SEND_ONLY, length=9),
        ReceiveInput(0),
        WaitInput(5_000_000),
        PacketInput(Opcode.RC_SEND_ONLY, length=1),
    )
    text = scenario_text(Case(Setup(), inputs))
    outcomes = [line.partition("status: ")[2] for line in text.splitlines() if "status: " in line]
    assert outcomes == ["SUCCESS, byte_len: 8}", "LOC_LEN_ERR}", "WR_FLUSH_ERR}"]
    assert "at: 5070 us" in text
    assert play(read_scenario_text(text)).passed


def test_a_case_without_inputs_is_a_scenario() -> None:
    assert play(read_scenario_text(scenario_text(Case(Setup(), ())))).passed


def test_a_long_wait_has_a_longer_time_limit() -> None:
    inputs = (WaitInput(10**12), PacketInput(Opcode.RC_SEND_ONLY))
    text = scenario_text(Case(Setup(), inputs))
    assert "time limit: 1010000020 us" in text
    assert play(read_scenario_text(text)).passed


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case(Setup(network=Network.IB_LOCAL), ()), "Ethernet, not native InfiniBand"),
        (Case(Setup(service=QPType.XRC_TGT), (WINDOW_WRITE,)), "an XRC target cannot bind"),
        (Case(Setup(service=QPType.RAW_PACKET), ()), "service RAW_PACKET"),
        (Case(Setup(), (WaitInput(1 << 60),)), "are more than"),
    ],
)
def test_what_a_scenario_cannot_play_is_refused(case: Case, why: str) -> None:
    with pytest.raises(FuzzError, match=why):
        scenario_text(case)


def test_texts_of_a_finding_cannot_change_the_scenario() -> None:
    """The texts of a finding are arbitrary."""
    special = 'a "quote" \\ and\nwork: []\x07 # comment: {'
    found = violation(
        0, WaitInput(1), Mismatch(special, (special,), (special,), Expected((), special))
    )
    text = scenario_text(Case(Setup(), (WRITE,)), found)
    scenario = read_scenario_text(text)
    assert len(scenario.steps) == 1
    assert '"quote" \\ and?work: []? # comment: {' in scenario.name


def test_the_profile_is_that_of_the_server() -> None:
    text = scenario_text(Case(Setup(), (WRITE,)), profile="rxe")
    assert [host.profile for host in read_scenario_text(text).hosts] == ["ibta", "rxe"]


def test_responses_of_a_read_are_expected_with_their_bytes(tmp_path: Path) -> None:
    read = PacketInput(Opcode.RC_RDMA_READ_REQUEST, dmalen=40, offset=3)
    inputs = (read, PacketInput(Opcode.RC_RDMA_READ_REQUEST, dmalen=0))
    text = scenario_text(Case(Setup(), inputs))
    assert text.count("payload: 0\n") == 1
    assert text.count("payload:\n        hex: >-\n") == 1
    outcome, _ = outcome_of(text, tmp_path / "played.pcap")
    assert outcome.passed
