"""Transport services as rows: opcodes, headers and reactions agree with the tables of the wire."""

import pytest

from rdmawire.ib.responder import REQUESTS
from rdmawire.ib.service import NO_OPCODE, SERVICES, Fault, Outbound, Reaction
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.wr import VERBS, SendOpcode
from rdmawire.wire.opcode import SHAPES, Opcode, Part
from rdmawire.wire.packet import LAYOUTS

WIRED = {kind: service for kind, service in SERVICES.items() if service.wire is not None}
OUTBOUND = [
    (kind, op, outbound)
    for kind, service in WIRED.items()
    for op, outbound in service.outbound.items()
]
SENDING = [row for row in OUTBOUND if SERVICES[row[0]].sends]


@pytest.mark.parametrize(("kind", "op", "outbound"), OUTBOUND)
def test_packets_of_work_have_opcodes_of_their_service(
    kind: QPType, op: SendOpcode, outbound: Outbound
) -> None:
    parts = {
        outbound.only: Part.ONLY,
        outbound.first: Part.FIRST,
        outbound.middle: Part.MIDDLE,
        outbound.last: Part.LAST,
    }
    for opcode, part in parts.items():
        if opcode == NO_OPCODE:
            continue
        shape = SHAPES[opcode]
        assert shape.service is SERVICES[kind].wire
        assert not shape.response
        assert shape.part in (part, Part.ONLY)
        assert outbound.layouts[opcode] is LAYOUTS[opcode]
    assert op in SERVICES[kind].verbs
    assert outbound.only != NO_OPCODE


@pytest.mark.parametrize(("kind", "op", "outbound"), SENDING)
def test_what_one_end_sends_the_other_knows(
    kind: QPType, op: SendOpcode, outbound: Outbound
) -> None:
    peer = QPType.XRC_TGT if kind is QPType.XRC_INI else kind
    for opcode in outbound.layouts:
        role = REQUESTS[peer][opcode]
        assert role.begins is (SHAPES[opcode].part in (Part.FIRST, Part.ONLY))
        assert role.ends is (SHAPES[opcode].part in (Part.LAST, Part.ONLY))
        takes = VERBS[op].takes_receive and role.ends
        assert (role.receipt is not None) is takes


@pytest.mark.parametrize("kind", REQUESTS)
def test_every_request_of_a_service_has_a_row(kind: QPType) -> None:
    """But for initiators, which are asked for nothing, and for RESYNC, which is of RD alone."""
    service = SERVICES[kind]
    expected = {
        opcode
        for opcode, shape in SHAPES.items()
        if shape.service is service.wire and not shape.response
    }
    if kind in (QPType.XRC_INI, QPType.RAW_PACKET):
        expected = set()
    assert {Opcode(opcode) for opcode in REQUESTS[kind]} == expected


@pytest.mark.parametrize("kind", WIRED)
def test_places_of_headers_are_those_of_the_shape(kind: QPType) -> None:
    for opcode, role in REQUESTS[kind].items():
        headers = LAYOUTS[opcode].headers
        assert role.headers == headers
        assert [headers[place] for place in role.places.values()] == list(role.places)
        assert role.places.keys() == set(headers)


@pytest.mark.parametrize("kind", SERVICES)
def test_services_that_acknowledge_answer_and_others_drop(kind: QPType) -> None:
    service = SERVICES[kind]
    for fault, reaction in service.reactions.items():
        if fault is Fault.OWNER_GONE and service.reliable:
            assert reaction == Reaction(fatal=True)  # a process that has ended says nothing
        elif service.reliable:
            answered = reaction.nak is not None or reaction.rnr or reaction.replay
            assert answered or reaction.acknowledged
            assert reaction.drop is None
        else:
            assert reaction.nak is None
            assert reaction.fatal is (reaction.drop is None)
    assert service.send_error is (QPState.ERR if service.reliable else QPState.SQE)
    assert (service.grh == 40) is (kind is QPType.UD)


def test_every_fault_has_a_reaction_where_it_can_happen() -> None:
    reliable = set(Fault) - {Fault.QKEY}
    assert set(SERVICES[QPType.RC].reactions) == reliable
    never = {Fault.DUPLICATE, Fault.RESOURCES, Fault.MISALIGNED, Fault.INVALIDATE}
    assert set(SERVICES[QPType.UD].reactions) == set(Fault) - never
    assert set(SERVICES[QPType.UC].reactions) == set(Fault) - never


@pytest.mark.parametrize(("kind", "op", "outbound"), OUTBOUND)
def test_packets_have_the_opcode_of_their_place(
    kind: QPType, op: SendOpcode, outbound: Outbound
) -> None:
    assert outbound.at(0, 0) == outbound.only, (kind, op)
    expected = [outbound.first, outbound.middle, outbound.middle, outbound.last]
    assert [outbound.at(index, 3) for index in range(4)] == expected


def test_a_grh_precedes_the_payload_of_datagrams_alone() -> None:
    assert {kind: service.grh for kind, service in SERVICES.items() if service.grh} == {
        QPType.UD: 40
    }
