"""CRCs of InfiniBand and RoCE, against vectors from elsewhere and a bit-by-bit CRC."""

from collections.abc import Callable
from ipaddress import ip_address

import pytest
from hypothesis import given

from rdmawire.errors import WireError
from rdmawire.testing.strategies import frames, native_packets
from rdmawire.wire import native, roce
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, LRH
from rdmawire.wire.icrc import VARIANT, icrc_grh, icrc_ipv4, icrc_ipv6, icrc_lrh, vcrc
from rdmawire.wire.inet import UDP, Ethernet, IPv4, IPv6
from rdmawire.wire.layout import Piece, joined, size
from rdmawire.wire.native import NativePacket
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame

_MAC = bytes.fromhex("248a07a8fa22")
_UC_SEND = Packet.make(
    Opcode.UC_SEND_ONLY,
    payload=bytes.fromhex("4630818be28935d90e9a95505401be885e50"),
    migreq=1,
    destqp=211,
    psn=13571856,
)

# Frames from Scapy's tests of its RoCE layer (test/contrib/roce.uts); the numbers are theirs.
UC_SEND_ONLY_IPV4 = Frame(
    (
        Ethernet(_MAC, _MAC, 0x0800),
        IPv4(
            ecn=1, total_length=64, identification=1144, df=1, protocol=17, checksum=0xB4D5,
            src=ip_address("192.168.0.7").packed, dst=ip_address("192.168.0.7").packed,
        ),
        UDP(49152, 4791, 44, 0xACA2),
    ),
    _UC_SEND,
    0x78F353F3,
)  # fmt: skip
UC_SEND_ONLY_IPV6 = Frame(
    (
        Ethernet(_MAC, _MAC, 0x86DD),
        IPv6(
            dscp=226 >> 2, ecn=226 & 3, flow=0x1FACE, payload_length=44, next_header=17,
            hop_limit=255, src=ip_address("2022::1023").packed, dst=ip_address("2023::1024").packed,
        ),
        UDP(49152, 4791, 44, 0xE7C5),
    ),
    _UC_SEND,
    0x3E5B743B,
)  # fmt: skip
CNP_CONNECTX_4_LX = bytes.fromhex(
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201"
    "000012b7002800008100ffff400001180000000000000000000000000000000000000000"
    "82fd002a"
)
ROCE_RC_RDMA_WRITE_ONLY = bytes.fromhex(
    "7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f000002"
    "00000000000000000000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b3"
    "00000005000000000100" + "0000e3d856bb"
)
ROCE_RC_ACKNOWLEDGE = bytes.fromhex(
    "7cfe90753cd87cfe90753cd889156020000000141b4000000000000000000000ffff0f000002"
    "00000000000000000000ffff0f0000021140ffff0000010900a788c00000000525f0c038"
)
# The packet local to a subnet that IBA 7.8 works through, up to its ICRC.
IBA_LOCAL_PACKET = bytes.fromhex(
    "7012375c000e17d20a2024870087b1b3000dec2a01710a1c015d400238f27a050000000e"
    "bb884d85fd5cfba4728bc0690ed40000"
)


@pytest.mark.parametrize(
    ("frame", "icrc"),
    [
        (UC_SEND_ONLY_IPV4.build(), 0x78F353F3),
        (UC_SEND_ONLY_IPV6.build(), 0x3E5B743B),
        (CNP_CONNECTX_4_LX, 0x82FD002A),
        (ROCE_RC_RDMA_WRITE_ONLY, 0xE3D856BB),
        (ROCE_RC_ACKNOWLEDGE, 0x25F0C038),
    ],
    ids=["UC_SEND_ONLY_IPV4", "UC_SEND_ONLY_IPV6", "CNP", "RDMA_WRITE_ONLY", "ACKNOWLEDGE"],
)
def test_icrc_of_known_frames(frame: bytes, icrc: int) -> None:
    parsed = roce.parse(frame)
    assert parsed.icrc == icrc
    assert parsed.expected_icrc() == icrc
    assert parsed.build() == frame
    assert parsed.seal() == parsed


def test_icrc_of_the_standards_sample_packet() -> None:
    assert icrc_lrh(IBA_LOCAL_PACKET) == 0x9625B75A


def bitwise_crc(data: bytes, width: int, polynomial: int) -> int:
    """Bit by bit, least significant first: begun with ones, inverted, in wire order."""
    reflected = int(f"{polynomial:0{width}b}"[::-1], 2)
    crc = (1 << width) - 1
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (reflected if crc & 1 else 0)
    crc ^= (1 << width) - 1
    return int.from_bytes(crc.to_bytes(width // 8, "little"), "big")


def masked(data: bytes, places: dict[int, int]) -> bytes:
    copy = bytearray(data)
    for place, mask in places.items():
        copy[place] |= mask
    return bytes(copy)


def ones(*places: int) -> dict[int, int]:
    return dict.fromkeys(places, 0xFF)


@given(frames())
def test_icrc_of_roce_is_ethernets_crc_with_ones_for_what_may_change(frame: Frame) -> None:
    network = max(i for i, p in enumerate(frame.headers) if isinstance(p, IPv4 | IPv6 | GRH))
    start = sum(map(size, frame.headers[:network]))
    at = sum(map(size, frame.headers[network:]))
    variant: dict[type, dict[int, int]] = {
        IPv4: ones(1, 8, 10, 11, at - 2, at - 1),
        IPv6: {0: 0x0F} | ones(1, 2, 3, 7, at - 2, at - 1),
        GRH: {0: 0x0F} | ones(1, 2, 3, 7),
    }
    places = variant[type(frame.headers[network])]
    covered = frame.build()[start : start + at + len(frame.packet.build())]
    expected = bitwise_crc(b"\xff" * 8 + masked(covered, places | ones(at + 4)), 32, 0x04C11DB7)
    assert frame.icrc == expected


@given(native_packets())
def test_crcs_of_native_packets(packet: NativePacket) -> None:
    data = packet.build()
    bth = 48 if packet.grh else 8
    if packet.grh:
        covered = b"\xff" * 8 + masked(data[8:-6], {0: 0x0F} | ones(1, 2, 3, 7, bth - 8 + 4))
    else:
        covered = masked(data[:-6], {0: 0xF0} | ones(bth + 4))
    assert packet.icrc == bitwise_crc(covered, 32, 0x04C11DB7)
    assert packet.vcrc == bitwise_crc(data[:-2], 16, 0x100B)
    assert native.parse(data) == packet


def test_what_switches_may_change_does_not_change_the_icrc() -> None:
    ip, udp = UC_SEND_ONLY_IPV4.headers[1:]
    assert isinstance(ip, IPv4)
    assert isinstance(udp, UDP)
    bth = _UC_SEND.bth.replace(fecn=1, becn=1, resv6=63)
    changed = Frame(
        (ip.replace(dscp=26, ecn=3, ttl=1, checksum=7), udp.replace(checksum=9)),
        _UC_SEND.replace(bth=bth),
    )
    assert changed.expected_icrc() == 0x78F353F3


STACKS: list[tuple[Callable[[bytes], int], tuple[Piece, ...]]] = [
    (icrc_ipv4, (IPv4(protocol=17), UDP(), BTH())),
    (icrc_ipv4, (IPv4(ihl=15, protocol=17), bytes(40), UDP(), BTH())),
    (icrc_ipv6, (IPv6(next_header=17), UDP(), BTH())),
    (lambda data: icrc_ipv6(data, bth=40 + 16 + 8), (IPv6(), bytes(16), UDP(), BTH())),
    (icrc_grh, (GRH(), BTH())),
    (icrc_lrh, (LRH(), BTH())),
]


@pytest.mark.parametrize(("of", "pieces"), STACKS)
def test_the_icrc_depends_on_every_bit_but_those_of_the_rows_listed(
    of: Callable[[bytes], int], pieces: tuple[Piece, ...]
) -> None:
    data = joined(*pieces, b"payload.")
    good = of(data)
    for bit, counts in enumerate(counted(pieces)):
        if bit in WHERE_THE_BTH_IS.get(type(pieces[0]), ()):
            continue
        changed = int.from_bytes(data, "big") ^ 1 << 8 * len(data) - 1 - bit
        assert (of(changed.to_bytes(len(data), "big")) != good) == counts, f"bit {bit}"


WHERE_THE_BTH_IS: dict[type, range] = {IPv4: range(4, 8), LRH: range(14, 16)}
"""Bits that cannot be flipped alone, as they say where the BTH stands."""


def counted(pieces: tuple[Piece, ...]) -> list[bool]:
    counts: list[bool] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            counts += [True] * 8 * len(piece)
        else:
            for row in piece.rows:
                counts += [row.name not in VARIANT[type(piece)]] * row.size
    return [*counts, *[True] * 64]


@pytest.mark.parametrize("table", VARIANT, ids=lambda table: table.__name__)
def test_what_may_change_are_rows_of_their_tables(table: type[Header]) -> None:
    assert {row.name for row in table.rows}.issuperset(VARIANT[table])


def test_an_ipv4_header_too_short_to_be_one_has_no_icrc() -> None:
    with pytest.raises(WireError, match=r"IPv4.ihl 4 is less than the 5 words"):
        icrc_ipv4(IPv4(ihl=4).build() + bytes(40))


def test_a_bth_stands_where_it_is_said_to_whatever_ipv4_says_of_its_length() -> None:
    data = IPv4(ihl=6).build() + bytes(40)
    assert icrc_ipv4(data, bth=32) == icrc_ipv4(data)
    assert icrc_ipv4(data, bth=28) != icrc_ipv4(data)


@pytest.mark.parametrize("bth", [27, 72])
def test_a_bth_where_no_ipv4_header_ends_has_no_icrc(bth: int) -> None:
    with pytest.raises(WireError, match=rf"no IPv4 and UDP fit before a BTH at byte {bth}"):
        icrc_ipv4(bytes(100), bth=bth)


def test_a_bth_inside_the_ipv6_header_has_no_icrc() -> None:
    with pytest.raises(WireError, match=r"no room for IPv6 and UDP before a BTH at byte 47"):
        icrc_ipv6(bytes(80), bth=47)


@pytest.mark.parametrize("of", [icrc_ipv4, icrc_ipv6, icrc_grh, icrc_lrh])
def test_a_buffer_that_ends_before_the_bth_does_is_a_wire_error(
    of: Callable[[bytes], int],
) -> None:
    for length in range(20):
        with pytest.raises(WireError):
            of(b"\x45\0"[:length] + bytes(max(length - 2, 0)))


def test_crcs_read_from_and_to_the_bytes_asked_for() -> None:
    data = IBA_LOCAL_PACKET
    assert icrc_lrh(b"xyz" + data + b"rest", 3, 3 + len(data)) == 0x9625B75A
    assert vcrc(b"xyz" + data + b"rest", 3, 3 + len(data)) == vcrc(data)
    assert BTH.parse(data, LRH.SIZE).opcode == Opcode.RC_RDMA_WRITE_ONLY
