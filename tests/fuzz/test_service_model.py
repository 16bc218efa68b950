"""Bugs planted in the responders of UC, UD and XRC are found, minimised and replayed."""

from dataclasses import replace
from typing import Any

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.fuzzer import EngineFuzzer
from rdmawire.fuzz.inputs import Case
from rdmawire.fuzz.service_model import SERVICES, fresh_model
from rdmawire.fuzz.setup import Setup
from rdmawire.ib import checks, execute
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import RequestRule, Rules
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import RELIABLE, UNRELIABLE, Fault
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPType
from rdmawire.wire.ib import DETH, XRCETH
from rdmawire.wire.inet import IPv4
from rdmawire.wire.opcode import Opcode
from tests.fuzz.parameters import slow
from tests.fuzz.planted_bug_runs import SEED, found_by


def _gap_is_ignored(qp: QueuePair, _: RequestRule, request: Arrival) -> Fault | None:
    """A gap does not drop the message in progress."""
    qp.inbound.epsn = request.psn
    return None


def _no_new_beginning(qp: QueuePair, role: RequestRule, _: Arrival) -> Fault | None:
    """A first packet within a message is dropped with it."""
    family = qp.inbound.incoming.family
    return None if family is role.follows else Fault.OP_SEQUENCE


def _qkey_of_31_bits(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """The high bit of the Q_Key is not compared."""
    found: int = request.extended[role.places[DETH]].qkey
    return Fault.QKEY if (found ^ qp.qkey) << 1 & 0xFFFFFFFF else None


def _no_room_for_a_header(qp: QueuePair, _: RequestRule, request: Arrival) -> Fault | None:
    """The payload is placed without the 40 bytes of the network header."""
    incoming = qp.inbound.incoming
    if len(request.payload) > incoming.limit:
        return Fault.TOO_LONG
    incoming.sink.write(0, request.payload)
    incoming.placed = len(request.payload)
    return None


def _any_domain(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """A shared receive queue of another XRC domain is used."""
    srq = qp.device.srqs.get(request.extended[role.places[XRCETH]].xrcsrq)
    if srq is None or srq.xrc is None or (not role.begins and srq is not qp.srq):
        return Fault.OP_VALID
    qp.srq, qp.recv_cq = srq, srq.xrc.cq
    qp.pd = qp.recv_pd = srq.pd
    return None


def _other_queue_on_the_way(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Later packets of a message may name another queue."""
    first = replace(role, begins=True, headers=role.headers)
    return checks.check_xrcsrq(qp, first, request)


BUGS: dict[str, tuple[str, Rules]] = {
    "a gap is ignored": ("uc", STANDARD.with_step(checks.check_psn_gap, _gap_is_ignored)),
    "no new beginning": ("uc", STANDARD.with_step(checks.check_op_seq, _no_new_beginning)),
    "a NAK of a key": (
        "uc",
        STANDARD.with_reaction(QPType.UC, Fault.RKEY, RELIABLE[Fault.RKEY]),
    ),
    "a Q_Key of 31 bits": ("ud", STANDARD.with_step(checks.check_qkey, _qkey_of_31_bits)),
    "no GRH": ("ud", STANDARD.with_step(execute.place_datagram, _no_room_for_a_header)),
    "a long datagram ends the queue pair": (
        "ud",
        STANDARD.with_reaction(QPType.UD, Fault.TOO_LONG, UNRELIABLE[Fault.TOO_LONG]),
    ),
    "any XRC domain": ("xrc", STANDARD.with_step(checks.check_xrcsrq, _any_domain)),
    "another SRQ on the way": (
        "xrc",
        STANDARD.with_step(checks.check_xrcsrq, _other_queue_on_the_way),
    ),
    "no RNR NAK": (
        "xrc",
        STANDARD.with_reaction(QPType.XRC_TGT, Fault.NOT_READY, UNRELIABLE[Fault.NOT_READY]),
    ),
}


def _other_undefined_bytes(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """The 20 bytes before an IPv4 header, which are undefined, are not 0. IBA A17.4.4."""
    fault = execute.place_datagram(qp, role, request)
    if (
        fault is None
        and len(request.flow.headers) > 2
        and isinstance(request.flow.headers[1], IPv4)
    ):
        qp.inbound.incoming.sink.write(0, b"undefined bytes here")
    return fault


def test_undefined_bytes_before_an_ipv4_header_are_no_finding() -> None:
    rules = STANDARD.with_step(execute.place_datagram, _other_undefined_bytes)
    batch = fuzzer_of("ud", rules).batch(SEED, 0, 50)
    assert batch.found == []
    assert (Opcode.UD_SEND_ONLY, "40 bytes of header, then the payload") in batch.reached


def fuzzer_of(name: str, rules: Rules = STANDARD) -> EngineFuzzer:
    return EngineFuzzer({"kind": "engine", "service": name}, EngineTarget(rules=rules))


FIRST_RUNS = {"any XRC domain": 120, "another SRQ on the way": 700}
"""Runs from which a bug is searched that the runs before do not find."""


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    service, rules = BUGS[name]
    fuzzer = fuzzer_of(service, rules)
    found = fuzzer.minimised(found_by(fuzzer, FIRST_RUNS.get(name, 0)))
    assert len(found.case["inputs"]) <= 5
    assert found.violation.clause.startswith("IBA ")
    shown, frames = fuzzer.replay(found.case)
    assert shown == found.violation
    assert frames
    again: Any = Case.from_json(found.case).as_json()
    assert again == found.case
    assert fuzzer_of(service).replay(found.case)[0] is None


@pytest.mark.parametrize("runs", [100, *slow([500])])
@pytest.mark.parametrize("name", SERVICES)
def test_the_model_of_a_service_agrees_with_the_engine(name: str, runs: int) -> None:
    batch = fuzzer_of(name).batch(SEED, 0, runs)
    assert batch.found == []
    assert batch.executed > 10 * runs


def test_all_services_are_fuzzed_in_turn() -> None:
    fuzzer = EngineFuzzer({"kind": "engine"})
    batch = fuzzer.batch(SEED, 0, 40)
    assert batch.found == []
    services = {opcode >> 5 for opcode, _ in batch.reached}
    assert {0, 1, 3, 5} <= services


def test_an_unknown_service_is_refused() -> None:
    with pytest.raises(FuzzError, match="service 'ux' is none of rc, uc, ud, xrc, all"):
        EngineFuzzer({"kind": "engine", "service": "ux"})


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        (Setup(service=QPType.RAW_PACKET), "RAW_PACKET have no model of a responder"),
        (Setup(service=QPType.XRC_INI), "XRC_INI have no model of a responder"),
    ],
)
def test_a_queue_pair_without_a_model_is_refused(setup: Setup, message: str) -> None:
    with pytest.raises(FuzzError, match=message):
        fresh_model(setup, Numbers(0x11, (), ()))


def test_a_key_of_33_bits_is_refused() -> None:
    with pytest.raises(FuzzError, match="a Q_Key has 32 bits"):
        Setup(service=QPType.UD, qkey=1 << 32)
