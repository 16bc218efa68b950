"""Congestion notification packets are counted by the queue pair that they are for."""

import pytest

from rdmawire.fabric.pair import Pair
from rdmawire.ib.rx_parser import Drop
from rdmawire.verbs.enums import QPType
from rdmawire.wire.ib import CNP
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame


def cnp_for(pair: Pair) -> bytes:
    """What a congested receiver sends: as the server would."""
    packet = Packet.make(Opcode.CNP, CNP(), destqp=pair.client.qp.qp_num, becn=1)
    return Frame(pair.server.qp.request_template.headers, packet).seal().build()


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
def test_a_connected_queue_pair_counts_them(kind: QPType) -> None:
    pair = Pair(kind=kind)
    for _ in range(3):
        pair.client.nic.receive(cnp_for(pair), 0)
    assert pair.client.qp.cnps == 3
    assert not pair.client.nic.transmit(0)
    assert not pair.client.nic.drops


def test_a_cnp_for_an_unknown_queue_pair_is_dropped() -> None:
    pair = Pair()
    frame = cnp_for(pair)
    pair.client.nic.destroy_qp(pair.client.qp)
    pair.client.nic.receive(frame, 0)
    assert pair.client.nic.drops[Drop.NO_QP] == 1
