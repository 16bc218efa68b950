"""What the oracle compares at the end of a case, and exceptions of an adapter."""

from typing import cast

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.fuzzer import EngineFuzzer, RequesterFuzzer
from rdmawire.fuzz.inputs import Case, PacketInput
from rdmawire.fuzz.oracle import judge
from rdmawire.fuzz.packet_validation import reply_of
from rdmawire.fuzz.setup import PEER_QPN, PKEY, Setup
from rdmawire.fuzz.target import COUNTERS, REQUESTER_COUNTERS, RequesterTarget, Target
from rdmawire.ib import checks, execute
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import RequestRule, Rules
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import Fault
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.wire.ib import AETH, Ack
from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, EtherType, IPProtocol, IPv4
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from tests.fuzz.parameters import slow
from tests.fuzz.planted_bug_runs import found_by

SPEC = {"kind": "engine", "service": "rc", "counters": "yes"}


class Stuck(EngineTarget):
    """An adapter of which one counter stays 0."""

    def __init__(self, counter: str) -> None:
        super().__init__()
        self._place = COUNTERS.index(counter)

    def counters(self) -> tuple[int, ...]:
        values = super().counters()
        return (*values[: self._place], 0, *values[self._place + 1 :])


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_counter_that_stays_0_is_found(counter: str) -> None:
    fuzzer = EngineFuzzer(SPEC, Stuck(counter))
    found = found_by(fuzzer)
    assert found.violation.signature == f"counters | {counter}"
    smallest = fuzzer.minimised(found)
    assert len(Case.from_json(smallest.case).inputs) <= 2
    assert smallest.violation.happened == f"{counter} 0"


@pytest.mark.parametrize("runs", [50, *slow([200])])
@pytest.mark.parametrize("service", ["rc", "uc", "ud", "xrc"])
def test_counters_of_the_adapter_are_right(service: str, runs: int) -> None:
    fuzzer = EngineFuzzer(SPEC | {"service": service})
    assert fuzzer.batch(3, 0, runs).found == []


def test_counters_are_compared_if_wanted() -> None:
    stuck = Stuck("duplicate_request")
    assert EngineFuzzer({"kind": "engine"}, stuck).batch(1, 0, 100).found == []

    class Peer:
        name = "a peer"

    with pytest.raises(FuzzError, match="a peer: no method counters"):
        EngineFuzzer(SPEC, cast(Target, Peer()))


REQUESTER = {"kind": "requester", "service": "rc", "counters": "yes"}


class StuckRequester(EngineTarget):
    """An adapter of which one counter of a requester stays 0."""

    def __init__(self, counter: str) -> None:
        super().__init__()
        self._place = REQUESTER_COUNTERS.index(counter)

    def requester_counters(self) -> tuple[int, ...]:
        values = super().requester_counters()
        return (*values[: self._place], 0, *values[self._place + 1 :])


@pytest.mark.parametrize("counter", REQUESTER_COUNTERS)
def test_a_requester_counter_that_stays_0_is_found(counter: str) -> None:
    fuzzer = RequesterFuzzer(REQUESTER, StuckRequester(counter))
    violation = found_by(fuzzer).violation
    assert violation.signature == f"counters | {counter}"
    assert violation.happened == f"{counter} 0"


@pytest.mark.parametrize("runs", [30, *slow([150])])
@pytest.mark.parametrize("service", ["rc", "uc", "ud", "xrc"])
@pytest.mark.parametrize("profile", ["ibta", "rxe"])
def test_counters_of_the_requester_are_right(service: str, profile: str, runs: int) -> None:
    spec = REQUESTER | {"service": service, "profile": profile, "accept": "all"}
    assert RequesterFuzzer(spec).batch(3, 0, runs).found == []


def test_a_requester_without_counters_is_refused() -> None:
    class Peer:
        name = "a peer"

    with pytest.raises(FuzzError, match="a peer: no method requester_counters"):
        RequesterFuzzer(REQUESTER, cast(RequesterTarget, Peer()))


def raising(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Fail as no adapter should, at an odd address."""
    header = request.extended[-1]
    if header.va % 2:
        raise IndexError("register 7")
    return checks.check_atomic_rkey(qp, role, request)


RAISING: Rules = STANDARD.with_step(checks.check_atomic_rkey, raising)


def test_an_exception_of_an_adapter_is_a_finding_and_the_fuzzer_goes_on() -> None:
    fuzzer = EngineFuzzer(SPEC, EngineTarget(rules=RAISING))
    batch = fuzzer.batch(1, 0, 150)
    assert {one.violation.signature for one in batch.found} == {
        "exception | IndexError test_oracle:raising"
    }
    assert len(batch.found) > 1
    assert batch.executed > 2500
    smallest = fuzzer.minimised(batch.found[0])
    assert len(Case.from_json(smallest.case).inputs) == 1
    shown, frames = fuzzer.replay(smallest.case)
    assert len(frames) == 1
    assert shown == smallest.violation
    assert shown is not None
    assert shown.happened.startswith("IndexError: register 7 in test_oracle")
    assert shown.expected == "no exception"


def test_after_an_exception_the_adapter_is_replaced() -> None:
    def breaking(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
        qp.device.ready.clear()
        qp.device.qps.clear()
        raise KeyError("the adapter is broken")

    target = EngineTarget(rules=STANDARD.with_step(execute.flush, breaking))
    flush = PacketInput(Opcode.RC_FLUSH, region=0, length=0, dmalen=8, value=1)
    send = PacketInput(Opcode.RC_ACKNOWLEDGE)
    for _ in range(2):
        shown = judge(target, Case(Setup(), (flush,)))
        assert shown is not None
        assert shown.what == "exception"
        assert judge(target, Case(Setup(), (send,))) is None


def test_an_input_without_a_method_is_no_finding() -> None:
    class Peer(EngineTarget):
        def send(self, frame: bytes) -> list[bytes]:
            raise FuzzError(f"{self.name}: the link is down")

    with pytest.raises(FuzzError, match="the link is down"):
        judge(Peer(), Case(Setup(), (PacketInput(Opcode.RC_ACKNOWLEDGE),)))


def test_the_reserved_bit_of_an_aeth_is_part_of_its_syndrome() -> None:
    for reserved in (0, 1):
        aeth = AETH(resv1=reserved, ack=Ack.ACK, value=31, msn=7)
        packet = Packet.make(Opcode.RC_ACKNOWLEDGE, aeth, destqp=PEER_QPN, pkey=PKEY, psn=5)
        headers = (
            Ethernet(type=EtherType.IPV4),
            IPv4(protocol=IPProtocol.UDP),
            UDP(49152, ROCE_PORT),
        )
        found = reply_of(Frame(headers, packet).seal().build())
        assert found is not None
        assert (found.psn, found.syndrome, found.msn) == (5, reserved << 7 | 31, 7)
