"""RoCE and native InfiniBand as networks of the fuzzer."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rdmawire.capture import LinkType, open_capture
from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.finding import Finding, write_finding
from rdmawire.fuzz.fuzzer import EngineFuzzer, Found
from rdmawire.fuzz.inputs import Case, Input, PacketInput, ReceiveInput
from rdmawire.fuzz.oracle import Mismatch, Session, judge
from rdmawire.fuzz.responder_inputs import ResponderInputs, random_setup
from rdmawire.fuzz.service_model import SERVICES
from rdmawire.fuzz.setup import Network, Setup
from rdmawire.verbs.enums import QPType
from rdmawire.wire import native
from rdmawire.wire.opcode import Opcode
from tests.fuzz.planted import SHORT_WRITES

NATIVE = (Network.IB_LOCAL, Network.IB_GLOBAL)
OTHERS = (Network.ROCE1, *NATIVE)
WRITE = PacketInput(Opcode.RC_RDMA_WRITE_ONLY, length=13, offset=8)
SHORT: tuple[Input, ...] = (
    PacketInput(Opcode.RC_RDMA_WRITE_FIRST, length=256, dmalen=300),
    PacketInput(Opcode.RC_RDMA_WRITE_LAST, length=4),
)


def difference(session: Session, setup: Setup, random: Random) -> Mismatch | None:
    """Play a random case; return the first difference from the model."""
    session.begin(setup)
    inputs = ResponderInputs(random, session.model)
    for _ in range(60):
        if found := session.play(inputs.next()):
            return found
    return None


@pytest.mark.parametrize("network", OTHERS)
@pytest.mark.parametrize("service", SERVICES)
def test_the_models_agree_with_the_engine(service: str, network: Network) -> None:
    session = Session(EngineTarget())
    for run in range(20):
        random = Random(f"{network.name} {service} {run}")
        setup = replace(random_setup(random, SERVICES[service]), network=network)
        assert difference(session, setup, random) is None
    assert session.executed > 500


def test_a_campaign_reaches_every_network() -> None:
    assert {random_setup(Random(number)).network for number in range(100)} == {*Network}


CHANGED = {
    "another SLID": PacketInput(Opcode.RC_SEND_ONLY, fields=(("lrh.slid", 3),)),
    "other path bits": PacketInput(Opcode.RC_SEND_ONLY, fields=(("lrh.dlid", 5),)),
    "another GRH": PacketInput(Opcode.RC_SEND_ONLY, fields=(("lrh.lnh", 2),)),
    "a virtual lane": PacketInput(Opcode.RC_SEND_ONLY, fields=(("lrh.vl", 3),)),
    "a length": PacketInput(Opcode.RC_SEND_ONLY, fields=(("lrh.pktlen", 9),)),
    "a bad ICRC": PacketInput(Opcode.RC_SEND_ONLY, checksum="BROKEN"),
    "a stale ICRC": PacketInput(Opcode.RC_SEND_ONLY, fields=(("bth.se", 1),), checksum="STALE"),
    "a cut": PacketInput(Opcode.RC_SEND_ONLY, length=8, cut=3),
}


@pytest.mark.parametrize("network", NATIVE)
@pytest.mark.parametrize("name", CHANGED)
def test_packets_have_a_good_vcrc(name: str, network: Network) -> None:
    session = Session(EngineTarget())
    session.recording = True
    session.begin(Setup(network=network))
    assert session.play(CHANGED[name]) is None
    ((sent, packet), *_) = session.frames
    assert not sent
    assert native.has_good_vcrc(packet)


@pytest.mark.parametrize("network", OTHERS)
def test_a_planted_bug_is_found_on_each_network(network: Network, tmp_path: Path) -> None:
    """The finding has a capture of its link, and a scenario where the simulator has such links."""
    case = Case(Setup(network=network), SHORT)
    target = EngineTarget(rules=SHORT_WRITES)
    shown = judge(target, case)
    assert shown is not None
    fuzzer = EngineFuzzer({"kind": "engine"}, target)
    found = Found(shown, case.as_json(), 0)
    place = write_finding(tmp_path, Finding({"kind": "engine"}, 1, 0, shown, found.case), fuzzer)
    with open_capture(place / "packets.pcapng") as capture:
        links = {record.link_type for record in capture}
    expected = LinkType.INFINIBAND if network in NATIVE else LinkType.ETHERNET
    assert links == {expected}
    assert (place / "scenario.yaml").exists() == (network not in NATIVE)
    has_none = "not native InfiniBand" in (place / "report.txt").read_text()
    assert has_none == (network in NATIVE)


def test_a_datagram_without_a_grh_leaves_forty_bytes_undefined() -> None:
    session = Session(EngineTarget())
    setup = Setup(service=QPType.UD, network=Network.IB_LOCAL)
    packet = PacketInput(Opcode.UD_SEND_ONLY, length=8)
    session.begin(setup)
    assert session.play(ReceiveInput(64)) is None
    assert session.play(packet) is None
    assert session.play(replace(packet, fields=(("lrh.dlid", 5), ("lrh.slid", 9)))) is None


@pytest.mark.parametrize("network", NATIVE)
def test_a_payload_that_an_lrh_cannot_count_is_refused(network: Network) -> None:
    session = Session(EngineTarget())
    session.begin(Setup(network=network))
    message = "8192 bytes of payload: on an InfiniBand link at most 8000"
    with pytest.raises(FuzzError, match=message):
        session.play(replace(WRITE, length=8192))
