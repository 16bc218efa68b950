"""Performance management: the data begin 40 bytes behind the common header."""

import pytest

from rdmawire.wire import mad, perf
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import ClassPortInfo, ManagementClass
from rdmawire.wire.perf import (
    PerfAttribute,
    PortCounters,
    PortCountersExtended,
    PortSamplesControl,
    PortSamplesResult,
)

# IBA 16.1.3: attribute, table and its length.
TABLES = {
    PerfAttribute.CLASS_PORT_INFO: (ClassPortInfo, 72),
    PerfAttribute.PORT_SAMPLES_CONTROL: (PortSamplesControl, 80),
    PerfAttribute.PORT_SAMPLES_RESULT: (PortSamplesResult, 64),
    PerfAttribute.PORT_COUNTERS: (PortCounters, 44),
    PerfAttribute.PORT_COUNTERS_EXTENDED: (PortCountersExtended, 184),
}


@pytest.mark.parametrize("attribute", TABLES)
def test_an_attribute_stands_at_byte_64(attribute: PerfAttribute) -> None:
    table, length = TABLES[attribute]
    head = MAD(mgmt_class=ManagementClass.PERF_MGT, attribute_id=attribute)
    pieces = list(mad.layout(mad.build(head, bytes(range(40)), bytes(range(192)))))
    assert pieces[:2] == [(0, head), (24, bytes(range(40)))]
    assert pieces[2:] == [
        (64, table.parse(bytes(range(192)))),
        (64 + length, bytes(range(length, 192))),
    ]


def test_every_attribute_is_listed_here() -> None:
    assert perf.ATTRIBUTES.keys() == TABLES.keys()


def test_an_attribute_without_a_table_is_plain() -> None:
    data = mad.build(MAD(mgmt_class=4, attribute_id=0x16), bytes(40), b"data")
    assert list(mad.layout(data))[2:] == [(64, b"data".ljust(192, b"\0"))]


def test_place_of_counters() -> None:
    # IBA 16.1.3.5, in bytes: link integrity and buffer overrun 19, VL15 22, data 24, wait 40.
    counters = PortCounters.parse(bytes(range(44)))
    assert (counters.local_link_integrity_errors, counters.excessive_buffer_overrun_errors) == (
        1,
        3,
    )
    assert (counters.vl15_dropped, counters.port_xmit_data) == (0x1617, 0x18191A1B)
    assert counters.port_xmit_wait == 0x28292A2B
    extended = PortCountersExtended.parse(bytes(range(184)))
    assert extended.port_multicast_rcv_pkts == 0x4041424344454647
    assert extended.qp1_dropped == 0xB0B1B2B3B4B5B6B7
