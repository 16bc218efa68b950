"""Bugs of parsers: small parsers with one rule or one row of a table replaced.

They are found by mutants of captured frames: the parser and the codec find other values, or the
parser raises an exception.
"""

from typing import Any, Final

from rdmawire.fuzz.planted_bugs.bug import PlantedBug
from rdmawire.fuzz.small_parsers import (
    MASKED,
    PACKET_RULES,
    SMALL_PARSERS,
)
from rdmawire.wire.inet import IPv4
from rdmawire.wire.mpa import MARKER_SPACING
from rdmawire.wire.opcode import Opcode, Payload


def _bug(parser: str, name: str, about: str, clause: str, **changes: Any) -> PlantedBug:
    """Return the bug of a parser whose rules have other values."""
    found = SMALL_PARSERS[parser]
    changed = found._replace(rules=found.rules._replace(**changes))
    return PlantedBug(name, about, clause, parser=changed, service=parser, kind="parser")


_HEADERS: Final = PACKET_RULES.headers
_WRITE_IMM: Final = Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE

BUGS: Final = (
    _bug(
        "packet-values",
        "pad-not-removed",
        "the pad is taken for payload",
        "IBA 9.2.5",
        pad=lambda _: 0,
    ),
    _bug(
        "packet-values",
        "pad-of-one-bit",
        "the pad count has one bit",
        "IBA 9.2.5",
        pad=lambda flags: flags >> 4 & 1,
    ),
    _bug(
        "packet-values",
        "pad-longer-than-payload",
        "a pad may be longer than what follows the headers",
        "IBA 9.2.5",
        fits=lambda _, __: True,
    ),
    _bug(
        "packet-values",
        "payload-of-odd-length",
        "payload and pad need not make a multiple of four bytes",
        "IBA 9.2.5",
        lengths={**PACKET_RULES.lengths, Payload.ANY: lambda _: True},
    ),
    _bug(
        "packet-values",
        "psn-with-ackreq",
        "the PSN has the bit of AckReq, too",
        "IBA 9.2.9",
        psn=lambda word: word & 0x80FF_FFFF,
    ),
    _bug(
        "packet-values",
        "atomiceth-of-24-bytes",
        "the table has an AtomicETH of 24 bytes",
        "IBA 9.3.5",
        sizes={**PACKET_RULES.sizes, "atomiceth": 24},
    ),
    _bug(
        "packet-values",
        "immediate-before-reth",
        "the table has the immediate before the RETH",
        "IBA 9.3.6",
        headers={**_HEADERS, _WRITE_IMM: tuple(reversed(_HEADERS[_WRITE_IMM]))},
    ),
    _bug(
        "fpdu-values",
        "mpa-length-underflow",
        "a ULPDU shorter than its DDP header has 64 KiB of payload: the length wraps",
        "RFC 5044, 4.1; RFC 5041, 4.3",
        payload=lambda size, length: (length - size) % (1 << 16),
    ),
    _bug(
        "fpdu-values",
        "marker-off-by-four",
        "Markers are expected four bytes too late",
        "RFC 5044, 4.2",
        marker=lambda position: (4 - position) % MARKER_SPACING,
    ),
    _bug(
        "fpdu-values",
        "mpa-pad-without-length",
        "the pad does not count the length field",
        "RFC 5044, 4.1",
        pad=lambda length: -length % 4,
    ),
    _bug(
        "fpdu-values",
        "mpa-crc-not-checked",
        "each CRC is accepted",
        "RFC 5044, 4.4",
        crc=lambda _, __: True,
    ),
    _bug(
        "bth-offset",
        "ip-options-ignored",
        "an IPv4 header has 20 bytes",
        "RFC 791, 3.1",
        size=lambda _: IPv4.SIZE,
    ),
    _bug(
        "bth-offset",
        "fragments-accepted",
        "a fragment is taken for a complete packet",
        "RFC 791, 3.1",
        whole=lambda _: True,
    ),
    _bug(
        "bth-offset",
        "any-udp-port",
        "each UDP port is that of RoCEv2",
        "IBA A17.4",
        port=lambda _: True,
    ),
    _bug(
        "icrc-status",
        "icrc-covers-ecn",
        "the ICRC covers DSCP and ECN, which switches change",
        "IBA A17.9",
        masked=MASKED - {1},
    ),
    _bug(
        "icrc-status",
        "icrc-covers-becn",
        "the ICRC covers the byte of the BTH with FECN and BECN",
        "IBA 7.8.1, A17.9",
        masked=MASKED - {32},
    ),
    _bug(
        "icrc-status",
        "icrc-without-lrh",
        "the ICRC does not begin with eight bytes of ones",
        "IBA A17.9",
        before=b"",
    ),
    _bug(
        "icrc-status",
        "icrc-big-endian",
        "the ICRC is sent with its highest byte first",
        "IBA 7.8.1",
        order="big",
    ),
)
"""All bugs of this module."""
