"""Where ends are found, as people write it, and in frames."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.traffic.generate.spec import Address, SpecError, TrafficSpec, Verb, place
from rdmawire.verbs.ah import mapped
from rdmawire.wire.inet import Ethernet, IPv4, IPv6
from tests.traffic.generate.made import made


@pytest.mark.parametrize(
    ("text", "ip", "mac"),
    [
        ("192.168.1.10", "192.168.1.10", None),
        (" fd00::10 ", "fd00::10", None),
        ("10.1.1.1/0c:C4:7a:00:00:01", "10.1.1.1", bytes.fromhex("0cc47a000001")),
    ],
)
def test_addresses(text: str, ip: str, mac: bytes | None) -> None:
    found = Address.parse(text)
    assert (str(found.ip), found.mac) == (ip, mac)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no address such as 10.0.0.1"),
        ("host", "is no address such as 10.0.0.1"),
        ("10.0.0.1/24", "is no address such as 10.0.0.1"),
        ("10.0.0.1/", "is no address such as 10.0.0.1"),
        ("10.0.0.1/0c:c4:7a:00:00", "is no address such as 10.0.0.1"),
        ("1" * 500, "is no address such as 10.0.0.1"),
        ("224.0.0.1", "is no address of one host"),
        ("0.0.0.0", "is no address of one host"),
        ("127.0.0.1", "is no address of one host"),
        ("fe80::1%eth0", "is no address of one host"),
        ("10.0.0.1/01:00:5e:00:00:01", "is no address of one host"),
    ],
)
def test_what_is_no_address(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as found:
        Address.parse(text)
    assert len(str(found.value)) < 200


@given(st.text(max_size=100))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with suppress(SpecError):
        Address.parse(text)


def test_what_is_not_said_is_as_usual() -> None:
    assert place(2, None, ipv6=False) == (b"\2\0\0\0\0\2", mapped(b"\x0a\0\0\2"))
    asked = place(2, Address.parse("10.9.9.9"), ipv6=False)
    assert asked == (b"\2\0\0\0\0\2", mapped(b"\x0a\x09\x09\x09"))


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.MIX, Verb.CM, Verb.CNP])
@pytest.mark.parametrize("ipv6", [False, True])
def test_frames_go_between_the_two(verb: Verb, ipv6: bool) -> None:
    here, there = ("fd00::a", "fd00::b") if ipv6 else ("172.16.0.1", "172.16.0.2")
    client, server = Address.parse(f"{here}/02:aa:00:00:00:01"), Address.parse(there)
    one = made(TrafficSpec(verb=verb, count=20, ipv6=ipv6, client=client, server=server))
    ends = {(client.mac, client.ip.packed), (b"\2\0\0\0\0\2", server.ip.packed)}
    for frame in one.frames:
        ethernet, network = frame.headers[:2]
        assert isinstance(ethernet, Ethernet)
        assert isinstance(network, IPv6 if ipv6 else IPv4)
        seen = {(ethernet.src, _bytes(network.src)), (ethernet.dst, _bytes(network.dst))}
        assert seen == ends


def _bytes(address: int | bytes) -> bytes:
    return address if isinstance(address, bytes) else address.to_bytes(4, "big")
