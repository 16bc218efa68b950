"""How many CNPs marks become: one for each, or one in an interval."""

import pytest

from rdmawire.fabric.fault import Faults, Rule
from rdmawire.fabric.link import SECOND, Link
from rdmawire.fabric.pair import Pair
from rdmawire.ib.congestion.dcqcn import MAX_PENDING_CNPS
from rdmawire.ib.engine import Nic
from rdmawire.units import us
from rdmawire.verbs.enums import QPState
from rdmawire.wire.inet import ECN
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import climb, go

MARKS = 20
RATES = (None, 100 * SECOND)


def marked_pair(rate: int | None, interval: int) -> tuple[Pair, Rule]:
    """A pair on a link that marks what the client asks for, and a server that tells of it."""
    rule = Rule("set", {"bth.opcode": Opcode.RC_RDMA_WRITE_ONLY}, field="ip.ecn", value=ECN.CE)
    pair = Pair(link=Link(us(1), rate=rate, faults=Faults([rule])))
    pair.server.nic.notify_congestion(pair.server.qp, interval)
    return pair, rule


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("busy", [False, True])
def test_without_an_interval_there_is_a_cnp_for_each_mark(rate: int | None, busy: bool) -> None:
    pair, rule = marked_pair(rate, 0)
    for _ in range(MARKS):
        pair.client.write(bytes(64), to=pair.server.region)
    if busy:
        pair.server.write(bytes(8192), to=pair.client.region)
    pair.drive()
    assert rule.hits == MARKS
    assert pair.client.qp.cnps == MARKS


@pytest.mark.parametrize("rate", RATES)
def test_in_an_interval_there_is_one_cnp(rate: int | None) -> None:
    pair, rule = marked_pair(rate, us(50))
    for _ in range(MARKS):
        pair.client.write(bytes(64), to=pair.server.region)
    pair.drive()
    assert (rule.hits, pair.client.qp.cnps) == (MARKS, 1)


def test_what_is_owed_is_bounded() -> None:
    pair, _ = marked_pair(None, 0)
    qp = pair.server.qp
    assert qp.notifier is not None
    for _ in range(MAX_PENDING_CNPS + 10):
        qp.notifier.marked()
    assert qp.inbound.cnps_due == MAX_PENDING_CNPS
    assert sent(pair.server.nic) == MAX_PENDING_CNPS


@pytest.mark.parametrize("room", [1, 2, 3])
def test_no_more_cnps_are_sent_than_there_is_room_for(room: int) -> None:
    pair, _ = marked_pair(None, 0)
    qp = pair.server.qp
    assert qp.notifier is not None
    for _ in range(5):
        qp.notifier.marked()
    assert len(pair.server.nic.transmit(0, room)) == room
    assert qp.inbound.cnps_due == 5 - room


def test_a_reset_queue_pair_sends_no_cnp() -> None:
    pair, _ = marked_pair(None, 0)
    server = pair.server
    assert server.qp.notifier is not None
    server.qp.notifier.marked()
    go(server, QPState.RESET)
    climb(server, QPState.RTS)
    assert sent(server.nic) == 0


def sent(nic: Nic) -> int:
    """How many frames go before there are none."""
    count = 0
    while frames := nic.transmit(0):
        count += len(frames)
    return count
