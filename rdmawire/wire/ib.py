"""The headers of the InfiniBand transport, and of its own links.

Clauses are those of the InfiniBand Architecture Specification, Volume 1. Field names are the
standard's; where Wireshark 4.0 knows a field, the row has its name for it.
"""

from enum import IntEnum
from typing import Final

from rdmawire.wire.header import Header, Meaning, bits, choice, flag, group, raw
from rdmawire.wire.opcode import Opcode, opcode_word
from rdmawire.wire.show import DIGITS, HEX, IPV6, hex_digits


class LNH(IntEnum):
    """Link Next Header: what follows the LRH. IBA 7.7.5."""

    RAW = 0
    IP_NON_IBA = 1
    IBA_LOCAL = 2
    IBA_GLOBAL = 3


class LRH(Header, clause="IBA 5.2.1, 7.7", wireshark="infiniband.lrh"):
    """Local Route Header: from port to port inside a subnet."""

    vl: int = bits(4, "infiniband.lrh.vl", HEX)
    lver: int = bits(4, "infiniband.lrh.lver")
    sl: int = bits(4, "infiniband.lrh.sl")
    resv2: int = bits(2, "infiniband.lrh.reserved2")
    lnh: int = bits(2, "infiniband.lrh.lnh", HEX, enum=LNH)
    dlid: int = bits(16, "infiniband.lrh.dlid")
    resv5: int = bits(5, "infiniband.lrh.reserved5")
    pktlen: int = bits(11, "infiniband.lrh.pktlen")
    slid: int = bits(16, "infiniband.lrh.slid")


class GRH(Header, clause="IBA 5.2.2, 8.3", wireshark="infiniband.grh"):
    """Global Route Header: from port to port across subnets, laid out as IPv6."""

    ipver: int = bits(4, "infiniband.grh.ipver", default=6)
    tclass: int = bits(8, "infiniband.grh.tclass")
    flowlabel: int = bits(20, "infiniband.grh.flowlabel")
    paylen: int = bits(16, "infiniband.grh.paylen")
    nxthdr: int = bits(8, "infiniband.grh.nxthdr", default=0x1B)
    hoplmt: int = bits(8, "infiniband.grh.hoplmt", default=64)
    sgid: bytes = raw(16, "infiniband.grh.sgid", IPV6)
    dgid: bytes = raw(16, "infiniband.grh.dgid", IPV6)


class RWH(Header, clause="IBA 5.3", wireshark="infiniband.rwh"):
    """Raw Header: the EtherType of what a raw packet carries."""

    resv16: int = bits(16)
    etype: int = bits(16, "infiniband.rwh.etype", HEX)


class BTH(Header, clause="IBA 5.2.3, 9.2", wireshark="infiniband.bth"):
    """Base Transport Header.

    FECN and BECN are RoCEv2's, annex A17.9.
    """

    opcode: int = bits(
        8, "infiniband.bth.opcode", enum=Opcode, words=opcode_word, clause="IBA 9.2.1"
    )
    se: int = flag("infiniband.bth.se", clause="IBA 9.2.3")
    migreq: int = flag("infiniband.bth.m", clause="IBA 9.2.4")
    padcnt: int = bits(2, "infiniband.bth.padcnt", clause="IBA 9.2.5")
    tver: int = bits(4, "infiniband.bth.tver", clause="IBA 9.2.2")
    pkey: int = bits(16, "infiniband.bth.p_key", tree=HEX, default=0xFFFF, clause="IBA 9.2.6")
    fecn: int = flag(clause="IBA A17.9")
    becn: int = flag(clause="IBA A17.9")
    resv6: int = bits(6)
    destqp: int = bits(24, "infiniband.bth.destqp", HEX, clause="IBA 9.2.7")
    ackreq: int = flag("infiniband.bth.a", clause="IBA 9.2.8")
    resv7: int = bits(7, "infiniband.bth.reserved7")
    psn: int = bits(24, "infiniband.bth.psn", clause="IBA 9.2.9")


HEAD_OF_BTH: Final = 8
"""Bytes of the BTH before the word that holds AckReq and PSN."""


class RDETH(Header, clause="IBA 5.2.4", wireshark="infiniband.rdeth"):
    """Reliable Datagram Extended Transport Header: the end-to-end context."""

    resv8: int = bits(8)
    eecnxt: int = bits(24, "infiniband.rdeth.eecnxt")


class DETH(Header, clause="IBA 5.2.5", wireshark="infiniband.deth"):
    """Datagram Extended Transport Header: the Q_Key, and the sender's queue pair."""

    qkey: int = bits(32, "infiniband.deth.q_key", hex_digits(16))
    resv8: int = bits(8)
    srcqp: int = bits(24, "infiniband.deth.srcqp", hex_digits(8))


class XRCETH(Header, clause="IBA 5.2.6, A14"):
    """XRC Extended Transport Header: the shared receive queue that the packet is for."""

    resv8: int = bits(8)
    xrcsrq: int = bits(24, "", HEX)


class RETH(Header, clause="IBA 5.2.7", wireshark="infiniband.reth"):
    """RDMA Extended Transport Header: where in remote memory, by which key, how many bytes."""

    va: int = bits(64, "infiniband.reth.va", HEX)
    rkey: int = bits(32, "infiniband.reth.r_key", HEX)
    dmalen: int = bits(32, "infiniband.reth.dmalen")


class AtomicETH(Header, clause="IBA 5.2.8", wireshark="infiniband.atomiceth"):
    """ATOMIC Extended Transport Header: where in remote memory, and what to add or swap in.

    FetchAdd adds ``swapdt`` and ignores ``cmpdt``.
    """

    va: int = bits(64, "infiniband.reth.va", HEX)
    rkey: int = bits(32, "infiniband.reth.r_key", HEX)
    swapdt: int = bits(64, "infiniband.atomiceth.swapdt")
    cmpdt: int = bits(64, "infiniband.atomiceth.cmpdt")


class Ack(IntEnum):
    """Types of AETH syndromes, from their two upper bits. IBA 9.7.5.2."""

    ACK = 0
    RNR_NAK = 1
    RESERVED = 2
    NAK = 3


class Nak(IntEnum):
    """NAK codes, IBA 9.7.5.2."""

    PSN_SEQUENCE_ERROR = 0
    INVALID_REQUEST = 1
    REMOTE_ACCESS_ERROR = 2
    REMOTE_OPERATIONAL_ERROR = 3
    INVALID_RD_REQUEST = 4


NO_CREDITS = 31
"""The credit count of a responder that does no end-to-end flow control. IBA 9.7.7.2.2."""

_STEPS = (1, 2, 3, *(base << shift for shift in range(1, 15) for base in (2, 3)))

CREDITS = (0, *_STEPS[:30])
"""Receive WQEs by credit count 0 to 30. IBA 9.7.7.2.2."""

RNR_TIMER_NS = tuple(10_000 * tens for tens in (65536, *_STEPS))
"""The minimum wait in nanoseconds, by RNR NAK timer 0 to 31. IBA 9.7.5.2."""


def credit_words(count: int) -> str:
    """Describe a credit count."""
    return "no end-to-end credits" if count == NO_CREDITS else f"{CREDITS[count]} credits"


def rnr_words(timer: int) -> str:
    """Describe an RNR timer."""
    return f"{RNR_TIMER_NS[timer] / 1e6:.2f} ms"


_SYNDROME: dict[int, Meaning] = {
    Ack.ACK: Meaning("infiniband.aeth.syndrome.credit_count", words=credit_words),
    Ack.RNR_NAK: Meaning("infiniband.aeth.syndrome.timer", words=rnr_words),
    Ack.RESERVED: Meaning("infiniband.aeth.syndrome.reserved_value"),
    Ack.NAK: Meaning("infiniband.aeth.syndrome.error_code", enum=Nak),
}


class AETH(Header, clause="IBA 5.2.9, 9.7.5.2", wireshark="infiniband.aeth"):
    """ACK Extended Transport Header: ACK, RNR NAK or NAK, and how far requests are done."""

    syndrome: int = group("infiniband.aeth.syndrome", "resv1", "ack", "value", tree=HEX)
    resv1: int = bits(1, "infiniband.aeth.syndrome.reserved")
    ack: int = bits(2, "infiniband.aeth.syndrome.opcode", enum=Ack)
    value: int = choice(5, "ack", _SYNDROME)
    msn: int = bits(24, "infiniband.aeth.msn")


class AtomicAckETH(Header, clause="IBA 5.2.10", wireshark="infiniband.atomicacketh"):
    """ATOMIC Acknowledge Extended Transport Header: the value in memory before it."""

    origremdt: int = bits(64, "infiniband.atomicacketh.origremdt")


class ImmDt(Header, clause="IBA 5.2.11", wireshark="infiniband.immdt"):
    """Immediate Data: 32 bits handed to the receive completion as they are."""

    immdt: int = bits(32, "infiniband.immdt", DIGITS)


class IETH(Header, clause="IBA 5.2.12", wireshark="infiniband.ieth"):
    """Invalidate Extended Transport Header: the R_Key to invalidate."""

    rkey: int = bits(32, "infiniband.ieth", DIGITS)


class Placement(IntEnum):
    """Placement types of FLUSH, as bits. IBA A19."""

    GLOBAL_VISIBILITY = 1
    PERSISTENCE = 2
    BOTH = 3


class Selectivity(IntEnum):
    """Selectivity levels of FLUSH: what is flushed. IBA A19."""

    MEMORY_REGION_RANGE = 0
    MEMORY_REGION = 1


class FETH(Header, clause="IBA A19"):
    """FLUSH Extended Transport Header: how far to place data, and how much of the region."""

    resv26: int = bits(26)
    sel: int = bits(2, enum=Selectivity)
    plt: int = bits(4, enum=Placement)


class CNP(Header, clause="IBA A17.9"):
    """Congestion Notification Packet: its sixteen reserved bytes."""

    resv128: bytes = raw(16)


class ICRC(Header, clause="IBA 5.2.14, 7.8.1"):
    """Invariant CRC: over all that switches and routers leave as it is.

    The number is its four bytes in wire order.
    """

    crc: int = bits(32, "infiniband.invariant.crc", HEX)


class VCRC(Header, clause="IBA 7.8.2"):
    """Variant CRC: over the whole packet on a native link.

    The number is its two bytes in wire order.
    """

    crc: int = bits(16, "infiniband.variant.crc", HEX)


class FlowControl(Header, clause="IBA 7.9.4"):
    """Flow control packet of a native link: the credits of a virtual lane."""

    op: int = bits(4, "infiniband_link.op")
    fctbs: int = bits(12, "infiniband_link.fctbs")
    vl: int = bits(4, "infiniband_link.vl")
    fccl: int = bits(12, "infiniband_link.fccl")
    lpcrc: int = bits(16, "infiniband_link.lpcrc", HEX)
