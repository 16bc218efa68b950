"""Address handles: ranges, groups, and the UDP source port of a flow."""

from errno import EINVAL
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.verbs.ah import (
    AddressHandle,
    check_address,
    is_ipv4,
    is_multicast,
    mapped,
    multicast_mac,
    udp_source_port,
)

V4 = mapped(ip_address("10.0.0.1").packed)
V6 = ip_address("fe80::1").packed
HANDLE = AddressHandle(dmac=bytes(6), dgid=V6, sgid=V6)

qpns = st.integers(0, (1 << 24) - 1)


def changed(field: str, value: object) -> AddressHandle:
    fields: dict[str, Any] = {field: value}
    return HANDLE._replace(**fields)


def gid(address: str) -> bytes:
    packed = ip_address(address).packed
    return packed if len(packed) == 16 else mapped(packed)


HIGHEST = {"hop_limit": 255, "traffic_class": 255, "flow_label": (1 << 20) - 1, "sl": 7}


@pytest.mark.parametrize("field", HIGHEST)
def test_numbers_have_the_width_of_their_header_field(field: str) -> None:
    check_address(changed(field, 0))
    check_address(changed(field, HIGHEST[field]))
    for value in (-1, HIGHEST[field] + 1):
        with pytest.raises(VerbsError, match=f"{field}: {value} is not an integer") as caught:
            check_address(changed(field, value))
        assert caught.value.errno == EINVAL


@pytest.mark.parametrize("port", [0, 2])
def test_the_port_must_be_there(port: int) -> None:
    with pytest.raises(VerbsError, match=r"port_num: . is not an integer from 1 to 1"):
        check_address(HANDLE._replace(port_num=port))


@pytest.mark.parametrize("field", ["dmac", "dgid", "sgid"])
@pytest.mark.parametrize("change", [-1, 1])
def test_addresses_have_their_bytes(field: str, change: int) -> None:
    size = len(getattr(HANDLE, field)) + change
    with pytest.raises(VerbsError, match=f"{field}: {size} bytes found"):
        check_address(changed(field, bytes(size)))


def test_both_ends_are_of_one_network() -> None:
    check_address(HANDLE._replace(dgid=V4, sgid=V4))
    with pytest.raises(VerbsError, match="IPv4"):
        check_address(HANDLE._replace(dgid=V4))


@pytest.mark.parametrize(
    ("address", "mac"),
    [
        ("ff02::1", "33:33:00:00:00:01"),
        ("ff0e::dead:beef", "33:33:de:ad:be:ef"),
        ("239.255.1.2", "01:00:5e:7f:01:02"),
        ("224.0.0.251", "01:00:5e:00:00:fb"),
    ],
)
def test_groups_have_an_ethernet_address(address: str, mac: str) -> None:
    assert is_multicast(gid(address))
    assert multicast_mac(gid(address)).hex(":") == mac


@given(st.ip_addresses())
def test_groups_are_those_of_the_internet_protocol(address: object) -> None:
    text = str(address)
    found = ip_address(text)
    assert is_multicast(gid(text)) == (getattr(found, "ipv4_mapped", None) or found).is_multicast
    assert is_ipv4(gid(text)) == (found.version == 4 or bool(getattr(found, "ipv4_mapped", None)))


@given(st.integers(0, (1 << 20) - 1), qpns, qpns)
def test_source_ports_are_dynamic_ones_and_alike_at_both_ends(
    label: int, local: int, remote: int
) -> None:
    port = udp_source_port(label, local, remote)
    assert 0xC000 <= port <= 0xFFFF
    assert port == udp_source_port(label, remote, local)


@given(st.integers(1, (1 << 20) - 1), qpns, qpns)
def test_a_flow_label_settles_the_port_alone(label: int, local: int, remote: int) -> None:
    assert udp_source_port(label, local, remote) == udp_source_port(label)


def test_source_ports_by_hand() -> None:
    assert udp_source_port(0x12345) == 0xE341  # 0x2345 ^ 0x4, with the two bits of 0xC000
    assert udp_source_port(0, 0x11, 0x12) == 0xC132  # 0x11 * 0x12
    assert udp_source_port(0, 0x1000, 0x1000) == 0xC010  # 2**24, folded by 20, the label 0x10


def test_each_flow_label_of_14_bits_has_a_port_of_its_own() -> None:
    assert len({udp_source_port(label) for label in range(1, 1 << 14)}) == (1 << 14) - 1
