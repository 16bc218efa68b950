"""Addresses as people write them."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.wire.inet import mac_bytes, of_group, of_one_host


@given(st.binary(min_size=6, max_size=6), st.sampled_from(":-"))
def test_an_ethernet_address_is_read_as_it_is_written(data: bytes, between: str) -> None:
    text = data.hex(between)
    assert mac_bytes(text) == mac_bytes(text.upper()) == data
    assert of_group(data) == (data[0] % 2 == 1)


NO_MACS = (
    *("", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "020000000001"),
    *("02:00:00:00:00:0g", "02:00:00:00:00:01\n", "\uff10\uff12:00:00:00:00:01"),
)


@pytest.mark.parametrize("text", NO_MACS)
def test_another_text_is_no_ethernet_address(text: str) -> None:
    with pytest.raises(ValueError, match="is no Ethernet address such as 02:00:00:00:00:01"):
        mac_bytes(text)


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("10.0.0.1", True),
        ("192.0.2.1", True),
        ("fd00::1", True),
        ("fe80::1", True),
        ("2001:db8::1", True),
        ("0.0.0.1", False),
        ("127.0.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("::ffff:10.0.0.1", False),
        ("ff02::1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_only_some_addresses_are_of_one_host(text: str, one: bool) -> None:
    assert of_one_host(ip_address(text)) is one
