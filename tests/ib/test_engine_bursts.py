"""Work and frames in bursts leave what they leave one by one: :mod:`tests.ib.bursts`."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.ib.completer import read_responded
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPType, WCStatus, WorkCompletion
from rdmawire.verbs.profile import BUGS_6_1, BUGS_6_12, IBTA, RXE_6_1, RXE_6_12
from rdmawire.verbs.wr import SendFlags, SendOpcode
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from tests.effort import examples
from tests.ib.bursts import (
    FAULTS,
    Action,
    Arm,
    Move,
    Place,
    Poll,
    PostRecv,
    PostSend,
    Setup,
    Wait,
    Work,
    both,
)

SIGNALED = SendFlags.SIGNALED
SIZES = (0, 1, 3, 64, 64, 64, 255, 256, 257, 512, 1000, 2600)
OPCODES = (
    SendOpcode.SEND,
    SendOpcode.SEND,
    SendOpcode.SEND_WITH_IMM,
    SendOpcode.RDMA_WRITE,
    SendOpcode.RDMA_WRITE_WITH_IMM,
    SendOpcode.RDMA_READ,
)
FLAGS = (SIGNALED, SIGNALED, 0, SIGNALED | SendFlags.SOLICITED, SIGNALED | SendFlags.FENCE)
PLACES = (*[Place.OWN] * 30, *Place)
PROFILES = (
    IBTA,
    RXE_6_1,
    RXE_6_12,
    replace(RXE_6_1, bugs=BUGS_6_1),
    replace(RXE_6_12, bugs=BUGS_6_12),
)
EQUAL = (MTU.MTU_256, MTU.MTU_256)
MTUS = (EQUAL, EQUAL, EQUAL, (MTU.MTU_256, MTU.MTU_512), (MTU.MTU_512, MTU.MTU_256))


def drawn_work(random: Random, kind: QPType) -> Work:
    opcode = random.choice(OPCODES if kind is QPType.RC else OPCODES[:-1])
    flags = random.choice(FLAGS if opcode is not SendOpcode.RDMA_READ else FLAGS[:3])
    if kind is QPType.UC:
        flags &= ~SendFlags.FENCE
    if opcode is SendOpcode.RDMA_WRITE:
        flags &= ~SendFlags.SOLICITED
    return Work(opcode, random.choice(SIZES), flags, random.choice(PLACES))


def drawn_works(random: Random, kind: QPType) -> list[Work]:
    if random.random() < 0.5:
        return [drawn_work(random, kind) for _ in range(random.randint(1, 6))]
    return [drawn_work(random, kind)._replace(place=Place.OWN)] * random.randint(1, 20)


def drawn_action(random: Random, kind: QPType) -> Action:
    side, qp = random.randrange(2), random.randrange(3)
    chosen = random.randrange(12)
    if chosen < 3:
        return PostSend(side, qp, drawn_works(random, kind))
    if chosen < 6:
        size = random.choice((0, 64, 64, 256, 2600, 2600, 2600, 2600, -64, random.choice((1, 64))))
        return PostRecv(side, qp, [size] * random.randint(1, 20))
    if chosen < 10:
        faults = [(random.choice(FAULTS), random.randrange(60)) for _ in range(random.randrange(3))]
        return Move(side, random.choice((1, 2, 7, 256, 256)), faults)
    if chosen == 10:
        return Poll(side, random.randrange(20))
    return random.choice((Arm(side), Arm(side, solicited_only=True), Wait()))


def drawn_setup(random: Random, kind: QPType) -> Setup:
    return Setup(
        kind=kind,
        qps=random.randint(1, 3),
        mtus=random.choice(MTUS),
        max_send_wr=random.choice((3, 64, 64, 64)),
        max_recv_wr=random.choice((3, 64, 64, 64)),
        cqe=random.choice((5, 512, 512, 512)),
        profile=random.choice(PROFILES),
        first_psn=random.choice((100, (1 << 24) - 5)),
        in_flight=random.choice((None, None, 1, 5)),
    )


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
def test_bursts_leave_what_single_packets_leave(kind: QPType, seed: int) -> None:
    random = Random(seed)
    setup = drawn_setup(random, kind)
    both(setup, [drawn_action(random, kind) for _ in range(random.randrange(24))])


READ = Work(SendOpcode.RDMA_READ, 2600)
"""A READ of eleven packets."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", range(11))
def test_a_read_whose_response_is_changed(fault: str, at: int) -> None:
    seen = both(Setup(), [PostSend(0, 0, [READ, READ]), Move(0), Move(1, faults=[(fault, at)])])
    assert statuses(seen) == [WCStatus.SUCCESS] * 2


def statuses(seen: list[object]) -> list[WCStatus]:
    """The statuses of the first side's completions at the end."""
    end = seen[-2]
    assert isinstance(end, list)
    completions: list[WorkCompletion] = end[1]
    return [completion.status for completion in completions]


def test_reads_of_both_sides_at_once() -> None:
    posts = [PostSend(side, 0, [READ] * 4) for side in (0, 1)]
    assert statuses(both(Setup(), posts)) == [WCStatus.SUCCESS] * 4


def test_a_read_whose_memory_a_write_changes() -> None:
    write = Work(SendOpcode.RDMA_WRITE, 2600)
    seen = both(Setup(), [PostSend(0, 0, [READ, write] * 4), Move(0), Move(1, 3), Move(0)])
    assert statuses(seen) == [WCStatus.SUCCESS] * 8


def test_a_handler_of_middle_read_responses_gets_each() -> None:
    found = []

    def counted(qp: QueuePair, response: Arrival) -> None:
        found.append(response.psn)
        read_responded(qp, response)

    changed = {**STANDARD.responses, Opcode.RC_RDMA_READ_RESPONSE_MIDDLE: counted}
    both(Setup(rules=replace(STANDARD, responses=changed)), [PostSend(0, 0, [READ])])
    assert found == [*range(101, 110)] * 2
