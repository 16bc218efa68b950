"""The Toeplitz hash: Microsoft's verification suite, and the properties of a linear hash."""

from ipaddress import ip_address
from random import Random

import pytest

from rdmawire.ib.flow_steering import RSS_KEY, rss_hash, toeplitz_hash

VERIFICATION = [
    # Microsoft, "Verifying the RSS hash calculation": destination, source, hash of the addresses,
    # hash of addresses and TCP ports.
    ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323E8FC2, 0x51CCC178),
    ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xD718262A, 0xC626B0EA),
    ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xD2D0A5DE, 0x5C2B394A),
    ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xAFC7327F),
    ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5D1809C5, 0x10E828A2),
    ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2CC18CD5, 0x40207D3D),
    ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0F0C461C, 0xDDE51BBF),
    (
        *("fe80::200:f8ff:fe21:67cf", 38024),
        *("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4B61E985, 0x02D1FEEF),
    ),
]


@pytest.mark.parametrize(("dst", "dport", "src", "sport", "addresses", "all_four"), VERIFICATION)
def test_the_verification_suite(
    dst: str, dport: int, src: str, sport: int, addresses: int, all_four: int
) -> None:
    ends = ip_address(src).packed, ip_address(dst).packed
    assert rss_hash(*ends) == addresses
    assert rss_hash(*ends, (sport, dport)) == all_four


def test_the_hash_is_linear() -> None:
    random = Random(1)
    for _ in range(50):
        one, other = random.randbytes(12), random.randbytes(12)
        both = bytes(a ^ b for a, b in zip(one, other, strict=True))
        assert toeplitz_hash(both) == toeplitz_hash(one) ^ toeplitz_hash(other)


def test_a_key_is_long_enough() -> None:
    assert toeplitz_hash(bytes(36)) == 0
    with pytest.raises(ValueError, match="4 more are needed"):
        toeplitz_hash(bytes(37), RSS_KEY)
