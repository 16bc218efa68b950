"""The tables of ports and switches: partitions, virtual lanes, forwarding. IBA 14.2.5."""

from rdmawire.wire.header import Header, bits
from rdmawire.wire.show import HEX


class PKeyEntry(Header, clause="IBA 14.2.5.7"):
    """A partition key; a P_KeyTable has 32 of them."""

    membership_type: int = bits(1, "infiniband.p_keytable.membershiptype", HEX)
    p_key_base: int = bits(15, "infiniband.p_keytable.p_keybase", HEX)


_EVEN = "infiniband.sltovlmappingtable.sltovlhighbits"
_ODD = "infiniband.sltovlmappingtable.sltovllowbits"


class SLtoVLMappingTable(Header, clause="IBA 14.2.5.8"):
    """Virtual lane of each service level."""

    sl0_to_vl: int = bits(4, _EVEN, HEX)
    sl1_to_vl: int = bits(4, _ODD, HEX)
    sl2_to_vl: int = bits(4, _EVEN, HEX)
    sl3_to_vl: int = bits(4, _ODD, HEX)
    sl4_to_vl: int = bits(4, _EVEN, HEX)
    sl5_to_vl: int = bits(4, _ODD, HEX)
    sl6_to_vl: int = bits(4, _EVEN, HEX)
    sl7_to_vl: int = bits(4, _ODD, HEX)
    sl8_to_vl: int = bits(4, _EVEN, HEX)
    sl9_to_vl: int = bits(4, _ODD, HEX)
    sl10_to_vl: int = bits(4, _EVEN, HEX)
    sl11_to_vl: int = bits(4, _ODD, HEX)
    sl12_to_vl: int = bits(4, _EVEN, HEX)
    sl13_to_vl: int = bits(4, _ODD, HEX)
    sl14_to_vl: int = bits(4, _EVEN, HEX)
    sl15_to_vl: int = bits(4, _ODD, HEX)


class VLArbitrationEntry(Header, clause="IBA 14.2.5.9"):
    """A virtual lane and its weight; a VLArbitrationTable has 32 of them."""

    resv4: int = bits(4)
    vl: int = bits(4, "infiniband.vlarbitrationtable.vl", HEX)
    weight: int = bits(8, "infiniband.vlarbitrationtable.weight", HEX)


class LinearForwardingTable(Header, clause="IBA 14.2.5.10"):
    """Ports that a block of 64 LIDs is forwarded to."""

    port: tuple[int, ...] = bits(8, "infiniband.linearforwardingtable.port", HEX, times=64)


class RandomForwardingEntry(Header, clause="IBA 14.2.5.11"):
    """Port that some LIDs are forwarded to; a RandomForwardingTable has 16 of them."""

    lid: int = bits(16, "infiniband.randomforwardingtable.lid", HEX)
    valid: int = bits(1, "infiniband.randomforwardingtable.valid", HEX)
    lmc: int = bits(3, "infiniband.randomforwardingtable.lmc", HEX)
    resv4: int = bits(4)
    port: int = bits(8, "infiniband.randomforwardingtable.port", HEX)


class MulticastForwardingTable(Header, clause="IBA 14.2.5.12"):
    """Ports, 16 as bits, that a block of 32 multicast LIDs is forwarded to."""

    port_mask: tuple[int, ...] = bits(
        16, "infiniband.multicastforwardingtable.portmask", HEX, times=32
    )
