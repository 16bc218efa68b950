"""Frames out of templates are the frames that the tables make, byte for byte."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.fabric.host import Host
from rdmawire.ib.encapsulation import headers_to
from rdmawire.ib.rx_parser import Drop, RxParser
from rdmawire.ib.tx_template import ACKREQ, MAX_HEADS, TxTemplate
from rdmawire.verbs.ah import AddressHandle
from rdmawire.wire.ib import BTH, RETH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame

MAC, PORT = b"\2\0\0\0\0\1", 0xC123


def path_of(ipv6: bool) -> AddressHandle:
    one, two = Host(1, ipv6=ipv6), Host(2, ipv6=ipv6)
    return one.path_to(two)


@given(
    ipv6=st.booleans(),
    psn=st.integers(0, 2**24 - 1),
    ackreq=st.booleans(),
    se=st.integers(0, 1),
    payload=st.binary(max_size=70),
    traffic_class=st.integers(0, 255),
    flow_label=st.integers(0, 2**20 - 1),
    pkey=st.integers(0, 0xFFFF),
)
def test_a_sealed_frame_is_the_one_that_the_tables_build(
    ipv6: bool,
    psn: int,
    ackreq: bool,
    se: int,
    payload: bytes,
    traffic_class: int,
    flow_label: int,
    pkey: int,
) -> None:
    path = path_of(ipv6)._replace(traffic_class=traffic_class, flow_label=flow_label)
    headers = headers_to(path, MAC, PORT)
    template = TxTemplate(headers, BTH(destqp=0x12, pkey=pkey))
    reth = RETH(1, 2, len(payload))
    expected = Packet.make(
        Opcode.RC_RDMA_WRITE_ONLY,
        reth,
        payload=payload,
        destqp=0x12,
        pkey=pkey,
        psn=psn,
        ackreq=int(ackreq),
        se=se,
    )
    word = psn | (ACKREQ if ackreq else 0)
    found = template.frame(Opcode.RC_RDMA_WRITE_ONLY, word, reth.build(), payload, se)
    assert found == Frame(headers, expected).seal().build()


@given(payload=st.binary(max_size=70), psn=st.integers(0, 2**24 - 1), ipv6=st.booleans())
def test_what_was_sealed_is_unsealed(payload: bytes, psn: int, ipv6: bool) -> None:
    headers = headers_to(path_of(ipv6), MAC, PORT)
    template = TxTemplate(headers, BTH(destqp=0x12))
    reth = RETH(7, 8, len(payload))
    rx_parser = RxParser(lambda _: True, Counter())
    for _ in range(2):  # the second time the head is known
        frame = template.frame(Opcode.RC_RDMA_WRITE_ONLY, psn | ACKREQ, reth.build(), payload)
        flow = rx_parser.flow_of(frame)
        assert flow is not None
        arrival = rx_parser.parse(frame, flow)
        assert arrival is not None
        assert (arrival.psn, arrival.ackreq, arrival.payload) == (psn, ACKREQ, payload)
        assert tuple(arrival.extended[0]) == (7, 8, len(payload))


@pytest.mark.parametrize("ipv6", [False, True])
def test_any_bit_behind_the_head_that_changes_is_found(ipv6: bool) -> None:
    headers = headers_to(path_of(ipv6), MAC, PORT)
    frame = TxTemplate(headers, BTH(destqp=0x12)).frame(Opcode.RC_SEND_ONLY, 5, b"", b"hello")
    drops: Counter[Drop] = Counter()
    rx_parser = RxParser(lambda _: True, drops)
    flow = rx_parser.flow_of(frame)
    assert flow is not None
    word = flow.layout.word
    for bit in range(word * 8, len(frame) * 8):
        data = bytearray(frame)
        data[bit // 8] ^= 1 << bit % 8
        assert rx_parser.parse(bytes(data), flow) is None
    assert drops == {Drop.ICRC: (len(frame) - word) * 8}


def test_heads_that_a_seal_keeps_are_bounded() -> None:
    template = TxTemplate(headers_to(path_of(False), MAC, PORT), BTH(destqp=2))
    first = template.frame(Opcode.RC_SEND_ONLY, 0, b"", b"x")
    for length in range(MAX_HEADS + 10):
        template.frame(Opcode.RC_SEND_ONLY, 0, b"", bytes(length))
    assert template.frame(Opcode.RC_SEND_ONLY, 0, b"", b"x") == first
    assert len(template._heads) <= MAX_HEADS
