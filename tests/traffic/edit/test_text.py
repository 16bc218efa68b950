"""Rules as people write them, and the error messages of others."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.traffic.edit import EditError, text
from rdmawire.traffic.edit.rules import EditField
from rdmawire.traffic.edit.text import fields_named, value
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.tables import tables

REFUSED: list[tuple[Callable[[Sequence[str]], object], str, str]] = [
    (text.ips, "banana=1.2.3.4", "'banana' is no IP address or prefix"),
    (text.ips, "1.2.3.4", "OLD=NEW is expected"),
    (text.ips, "1.2.3.4=fd00::1", "1.2.3.4 is IPv4 and fd00::1 is IPv6"),
    (text.ips, "1.2.3.0/24=1.2.0.0/16", "1.2.3.0/24 and 1.2.0.0/16 are not of the same length"),
    (text.ips, "1.2.3.4/24=5.6.7.0/24", "1.2.3.4/24 has host bits set"),
    (text.macs, "52:54:00:00:00=02:00:00:00:00:01", "'52:54:00:00:00' is no Ethernet address"),
    (text.qpns, "0x1000000=1", "0x1000000 does not fit 24 bits (0 to 0xffffff)"),
    (text.qpns, "x=1", "'x' is no number, such as 17 or 0x11"),
    (text.qpns, "1=", "'' is no number, such as 17 or 0x11"),
    (text.qpns, "1@there=2", "'there' is no address of a host: an IP address, or lid:7"),
    (text.qpns, "1@lid:70000=2", "70000 does not fit 16 bits"),
    (text.rkeys, "1=-1", "-1 does not fit 32 bits"),
    (text.vlans, "1=4096", "4096 does not fit 12 bits"),
    (text.lids, "1@10.0.0.1=2", "'1@10.0.0.1' is no number"),
    (text.psn_offsets, "1.5", "'1.5' is no number"),
    (text.psn_offsets, "17=16777216", "16777216 does not fit 24 bits"),
    (text.psn_offsets, "--5", "'--5' is no number to add, such as 5 or -0x10"),
    (text.psn_offsets, "17=-+5", "'-+5' is no number to add"),
    (text.va_offsets, "", "'' is no number to add"),
    (text.ips, "fe80::1%eth0=fe80::2", "'fe80::1' is to have no zone: 'eth0' is not in packets"),
    (text.ips, "fe80::1=fe80::2%", "'fe80::2' is to have no zone: '' is not in packets"),
    (text.qpns, "1@fe80::1%eth0=2", "'fe80::1' is to have no zone"),
    (text.va_offsets, "7@=5", "'' is no address of a host"),
]


@pytest.mark.parametrize(("make", "written", "reason"), REFUSED, ids=[row[1] for row in REFUSED])
def test_what_makes_no_sense_is_refused_in_one_line(
    make: Callable[[Sequence[str]], object], written: str, reason: str
) -> None:
    with pytest.raises(EditError) as refused:
        make([written])
    assert str(refused.value).startswith(f"{written!r}: {reason}")
    assert "\n" not in str(refused.value)


ONE_BY_ONE: list[tuple[Callable[[str], object], str, str]] = [
    (text.ecn, "maybe", "one of not, ect0, ect1, ce is expected"),
    (text.dscp, "64", "64 does not fit 6 bits"),
    (text.ttl, "256", "256 does not fit 8 bits"),
    (text.udp_source, "http", "'http' is no number"),
    (text.assignment, "bth.psn", "FIELD=VALUE or FIELD+=N is expected, such as bth.ackreq=1"),
    (text.assignment, "bth.spn=5", "no field is named 'bth.spn'; the nearest is bth.psn"),
    (
        text.assignment,
        "bth.foo=1",
        "no field is named 'bth.foo'; bth has opcode, se, migreq, padcnt, tver",
    ),
    (text.assignment, "infiniband.bth.x=1", "no field is named 'infiniband.bth.x'; infiniband.b"),
    (text.assignment, "ip.x=1", "no field is named 'ip.x'; ip has version, ihl, dscp, ecn"),
    (text.assignment, "nothing.like.it=1", "no field is named 'nothing.like.it'"),
    (text.assignment, "bth.psn=0x1000000", "0x1000000 does not fit 24 bits"),
    (text.assignment, "bth.psn+=many", "'many' is no number"),
    (text.assignment, "ip.src=1.2.3", "'1.2.3' is no IPv4 address"),
    (text.assignment, "grh.sgid=10.0.0.1", "'10.0.0.1' is no IPv6 address"),
    (text.assignment, "eth.dst=1", "'1' is no Ethernet address"),
    (text.assignment, "cnp.resv128=0102", "16 bytes are needed, 2 were given"),
    (text.assignment, "cnp.resv128=xy", "'xy' is no row of hexadecimal digits"),
    (text.assignment, "ip.hdr_len=22", "22 is no multiple of 4"),
    (text.assignment, "ipv6.src=fe80::1%eth0", "'fe80::1' is to have no zone: 'eth0' is not in"),
    (text.assignment, "udp.checksum+=1", "a checksum can be set, not added to"),
    (
        text.assignment,
        "aeth.ack=rnr",
        "'rnr' is no number, and none of the words ACK, RNR_NAK, RESERVED, NAK; did you mean RNR",
    ),
    (
        text.assignment,
        "infiniband.aeth.syndrome.opcode=maybe",
        "'maybe' is no number, and none of the words ACK, RNR_NAK, RESERVED, NAK",
    ),
    (
        text.assignment,
        "bth.opcode=RC_ACK",
        f"'RC_ACK' is no number, and none of the {len(Opcode)} words; did you mean RC_ACKNOWLEDGE?",
    ),
    (
        text.assignment,
        "bth.opcode=x",
        "'x' is no number, and none of the words RC_SEND_FIRST, RC_SEND_MIDDLE, RC_SEND_LAST",
    ),
    (text.assignment, "aeth.ack=4", "4 does not fit 2 bits (0 to 0x3)"),
    (text.assignment, "aeth.ack=1x", "'1x' is no number, such as 17 or 0x11"),
]


@pytest.mark.parametrize(
    ("make", "written", "reason"), ONE_BY_ONE, ids=[row[1] for row in ONE_BY_ONE]
)
def test_a_value_too_large_for_its_field_is_refused(
    make: Callable[[str], object], written: str, reason: str
) -> None:
    with pytest.raises(EditError) as refused:
        make(written)
    assert str(refused.value).startswith(f"{written!r}: {reason}")


@pytest.mark.parametrize(
    ("make", "texts"),
    [
        (text.ips, ["10.0.0.1=1.1.1.1", "10.0.0.1=1.1.1.2"]),
        (text.qpns, ["17=1", "0x11=2"]),
        (text.psn_offsets, ["17=1", "0x11=2"]),
        (text.va_offsets, ["1", "2"]),
    ],
)
def test_what_is_asked_for_twice_is_refused(
    make: Callable[[Sequence[str]], object], texts: list[str]
) -> None:
    with pytest.raises(EditError, match=f"{texts[0]!r} and {texts[1]!r}"):
        make(texts)


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("bth.opcode", "rc_send_only", 4),
        ("infiniband.bth.opcode", "CNP", 0x81),
        ("ip.ecn", "CE", 3),
        ("ip.hdr_len", "24", 6),
        ("ip.ihl", "6", 6),
        ("rdmawire.bth.fecn", "1", 1),
        ("ip.src", "10.0.0.1", 0x0A000001),
        ("grh.dgid", "::1", 1),
        ("eth.dst", "00:00:00:00:01:02", 0x102),
        ("cm_rtu.local_comm_id", "0x77", 0x77),
        ("cnp.resv128", "00" * 15 + ":07", 7),
        ("reth.va", "0xffffffffffffffff", (1 << 64) - 1),
    ],
)
def test_values_are_written_as_the_field_is(name: str, written: str, meant: int) -> None:
    assert value(fields_named(name)[0], written) == meant


def test_every_row_of_every_table_has_a_name_and_takes_its_least_and_greatest_number() -> None:
    for table in tables():
        for row in table.rows:
            (named,) = (
                each
                for each in fields_named(f"{table.label}.{row.name}")
                if each.table is table and each.row == row
            )
            assert EditField(named.table, named.row).width == row.size


@given(st.text(max_size=30))
def test_any_text_is_a_rule_or_is_refused_with_nothing_else(written: str) -> None:
    for make in (text.macs, text.ips, text.qpns, text.psn_offsets, text.va_offsets):
        with suppress(EditError):
            make([written])
    for one in (text.assignment, text.ecn, text.ttl):
        with suppress(EditError):
            one(written)


LONG = "x" * 200_000


@pytest.mark.parametrize(
    ("make", "written"),
    [
        (text.assignment, f"{LONG}=1"),
        (text.assignment, f"bth.psn={LONG}"),
        (text.assignment, f"bth.psn=0x{'f' * 200_000}"),
        (text.assignment, f"ip.src={LONG}"),
        (text.assignment, f"eth.dst={LONG}"),
        (text.assignment, f"cnp.resv128={LONG}"),
        (text.ecn, LONG),
        (lambda written: text.ips([written]), f"{LONG}=10.0.0.1"),
        (lambda written: text.ips([written]), f"fe80::1%{LONG}=10.0.0.1"),
        (lambda written: text.qpns([written]), f"1@{LONG}=2"),
        (lambda written: text.psn_offsets([written]), f"{LONG}=2"),
    ],
)
def test_of_a_long_text_a_message_has_the_beginning(
    make: Callable[[str], object], written: str
) -> None:
    with pytest.raises(EditError) as refused:
        make(written)
    assert str(refused.value).startswith(f"{written[:60]!r}"[:-1])
    assert len(str(refused.value)) < 400
