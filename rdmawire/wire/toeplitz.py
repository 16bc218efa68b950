"""The Toeplitz hash, by which receive side scaling (RSS) spreads flows over receive queues.

Source: Microsoft, "RSS hashing functions" and "Verifying the RSS hash calculation".
"""

from typing import Final

RSS_KEY: Final = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)
"""The secret key of Microsoft's verification suite, which most drivers have as their default."""
_HASH_BITS: Final = 32
_HASH_MASK: Final = (1 << _HASH_BITS) - 1
_PORT_BYTES: Final = 2


def toeplitz_hash(data: bytes, key: bytes = RSS_KEY) -> int:
    """Return the hash (32 bits) of ``data``; ``key`` has at least four bytes more.

    For each bit of the data that is set, the 32 bits of the key that begin at its place are added
    (exclusive or). ``ValueError`` for a key that is too short.
    """
    if len(key) < len(data) + _HASH_BITS // 8:
        raise ValueError(f"a key of {len(key)} bytes for {len(data)} bytes: 4 more are needed")
    bits, window = int.from_bytes(data, "big"), int.from_bytes(key, "big")
    first, last = len(data) * 8 - 1, len(key) * 8 - _HASH_BITS
    result = 0
    for place in range(len(data) * 8):
        if bits >> (first - place) & 1:
            result ^= window >> (last - place) & _HASH_MASK
    return result


def rss_hash(
    src: bytes, dst: bytes, ports: tuple[int, int] | None = None, key: bytes = RSS_KEY
) -> int:
    """Return the hash of a flow: its addresses (4 or 16 bytes), and its ports if it has any.

    ``ports`` are source and destination.
    """
    numbers = (
        b"" if ports is None else b"".join(port.to_bytes(_PORT_BYTES, "big") for port in ports)
    )
    return toeplitz_hash(src + dst + numbers, key)
