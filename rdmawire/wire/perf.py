"""Performance management: counters of a port. IBA 16.1."""

from collections.abc import Iterator
from enum import IntEnum

from rdmawire.wire.header import Header, bits
from rdmawire.wire.layout import Placed, Reader, area, plain, tables
from rdmawire.wire.management import ClassPortInfo
from rdmawire.wire.show import HEX

RESERVED = 40
"""Bytes between the common header and the data. IBA 16.1.1."""

DATA = 192
"""Bytes of data. IBA 16.1.1."""

_PC, _PCE = "infiniband.portcounters", "infiniband.portcounters_ext"


class PerfAttribute(IntEnum):
    """Attributes of performance management. IBA 16.1.3."""

    CLASS_PORT_INFO = 0x0001
    PORT_SAMPLES_CONTROL = 0x0010
    PORT_SAMPLES_RESULT = 0x0011
    PORT_COUNTERS = 0x0012
    PORT_RCV_ERROR_DETAILS = 0x0015
    PORT_XMIT_DISCARD_DETAILS = 0x0016
    PORT_OP_RCV_COUNTERS = 0x0017
    PORT_FLOW_CTL_COUNTERS = 0x0018
    PORT_VL_OP_PACKETS = 0x0019
    PORT_VL_OP_DATA = 0x001A
    PORT_VL_XMIT_FLOW_CTL_UPDATE_ERRORS = 0x001B
    PORT_VL_XMIT_WAIT_COUNTERS = 0x001C
    PORT_COUNTERS_EXTENDED = 0x001D


class SampleStatus(IntEnum):
    """Status of a sampling. IBA 16.1.3.2."""

    DONE = 0
    STARTED = 1
    RUNNING = 2


class PortSamplesControl(Header, clause="IBA 16.1.3.2"):
    """Sampling of a port's counters: when, and of what.

    Start and interval count ticks.
    """

    op_code: int = bits(8, "", HEX)
    port_select: int = bits(8)
    tick: int = bits(8, "", HEX)
    resv5: int = bits(5)
    counter_width: int = bits(3)
    resv2: int = bits(2)
    counter_mask0: int = bits(3, "", HEX)
    counter_masks1to9: int = bits(27, "", HEX)
    resv1: int = bits(1)
    counter_masks10to14: int = bits(15, "", HEX)
    sample_mechanisms: int = bits(8, "", HEX)
    resv6: int = bits(6)
    sample_status: int = bits(2, enum=SampleStatus)
    option_mask: int = bits(64, "", HEX)
    vendor_mask: int = bits(64, "", HEX)
    sample_start: int = bits(32)
    sample_interval: int = bits(32)
    tag: int = bits(16, "", HEX)
    counter_select: tuple[int, ...] = bits(16, "", HEX, times=15)
    resv32: int = bits(32)
    samples_only_option_mask: int = bits(64, "", HEX)


class PortSamplesResult(Header, clause="IBA 16.1.3.4"):
    """Result of sampling a port's counters."""

    tag: int = bits(16, "", HEX)
    resv14: int = bits(14)
    sample_status: int = bits(2, enum=SampleStatus)
    counter: tuple[int, ...] = bits(32, times=15)


class PortCounters(Header, clause="IBA 16.1.3.5"):
    """Counters of a port that stop when they are full. Data count units of four bytes."""

    resv8: int = bits(8)
    port_select: int = bits(8, f"{_PC}.portselect", HEX)
    counter_select: int = bits(16, f"{_PC}.counterselect", HEX)
    symbol_error_counter: int = bits(16, f"{_PC}.symbolerrorcounter")
    link_error_recovery_counter: int = bits(8, f"{_PC}.linkerrorrecoverycounter")
    link_downed_counter: int = bits(8, f"{_PC}.linkdownedcounter")
    port_rcv_errors: int = bits(16, f"{_PC}.portrcverrors")
    port_rcv_remote_physical_errors: int = bits(16, f"{_PC}.portrcvremotephysicalerrors")
    port_rcv_switch_relay_errors: int = bits(16, f"{_PC}.portrcvswitchrelayerrors")
    port_xmit_discards: int = bits(16, f"{_PC}.portxmitdiscards")
    port_xmit_constraint_errors: int = bits(8, f"{_PC}.portxmitconstrainterrors")
    port_rcv_constraint_errors: int = bits(8, f"{_PC}.portrcvconstrainterrors")
    counter_select2: int = bits(8, "", HEX)
    local_link_integrity_errors: int = bits(4, f"{_PC}.locallinkintegrityerrors")
    excessive_buffer_overrun_errors: int = bits(4, f"{_PC}.excessivebufferoverrunerrors")
    qp1_dropped: int = bits(16)
    vl15_dropped: int = bits(16, f"{_PC}.vl15dropped")
    port_xmit_data: int = bits(32, f"{_PC}.portxmitdata")
    port_rcv_data: int = bits(32, f"{_PC}.portrcvdata")
    port_xmit_pkts: int = bits(32, f"{_PC}.portxmitpkts")
    port_rcv_pkts: int = bits(32, f"{_PC}.portrcvpkts")
    port_xmit_wait: int = bits(32)


class PortCountersExtended(Header, clause="IBA 16.1.4.11"):
    """Counters of a port, in 64 bits. Data count units of four bytes."""

    resv8: int = bits(8)
    port_select: int = bits(8, f"{_PCE}.portselect", HEX)
    counter_select: int = bits(16, f"{_PCE}.counterselect", HEX)
    counter_select2: int = bits(32, "", HEX)
    port_xmit_data: int = bits(64, f"{_PCE}.portxmitdata")
    port_rcv_data: int = bits(64, f"{_PCE}.portrcvdata")
    port_xmit_pkts: int = bits(64, f"{_PCE}.portxmitpkts")
    port_rcv_pkts: int = bits(64, f"{_PCE}.portrcvpkts")
    port_unicast_xmit_pkts: int = bits(64, f"{_PCE}.portunicastxmitpkts")
    port_unicast_rcv_pkts: int = bits(64, f"{_PCE}.portunicastrcvpkts")
    port_multicast_xmit_pkts: int = bits(64, f"{_PCE}.portmulticastxmitpkts")
    port_multicast_rcv_pkts: int = bits(64, f"{_PCE}.portmulticastrcvpkts")
    symbol_error_counter: int = bits(64)
    link_error_recovery_counter: int = bits(64)
    link_downed_counter: int = bits(64)
    port_rcv_errors: int = bits(64)
    port_rcv_remote_physical_errors: int = bits(64)
    port_rcv_switch_relay_errors: int = bits(64)
    port_xmit_discards: int = bits(64)
    port_xmit_constraint_errors: int = bits(64)
    port_rcv_constraint_errors: int = bits(64)
    local_link_integrity_errors: int = bits(64)
    excessive_buffer_overrun_errors: int = bits(64)
    vl15_dropped: int = bits(64)
    port_xmit_wait: int = bits(64)
    qp1_dropped: int = bits(64)


ATTRIBUTES: dict[int, Reader] = {
    PerfAttribute.CLASS_PORT_INFO: tables(ClassPortInfo),
    PerfAttribute.PORT_SAMPLES_CONTROL: tables(PortSamplesControl),
    PerfAttribute.PORT_SAMPLES_RESULT: tables(PortSamplesResult),
    PerfAttribute.PORT_COUNTERS: tables(PortCounters),
    PerfAttribute.PORT_COUNTERS_EXTENDED: tables(PortCountersExtended),
}
"""Attribute id to the reader of its data."""


def body(buffer: bytes, offset: int, _: int, attribute_id: int) -> Iterator[Placed]:
    """Yield the pieces after the common header of a performance management datagram."""
    yield from area(buffer, offset, RESERVED, plain)
    yield from area(buffer, offset + RESERVED, DATA, ATTRIBUTES.get(attribute_id, plain))
