"""The edit of what stands inside FPDUs: STags, tagged offsets, and the CRC over them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from rdmawire.errors import WireError
from rdmawire.traffic.edit.place import Hosts, Layout, Place
from rdmawire.traffic.edit.rule import Rule
from rdmawire.traffic.edit.seal import Seal, Sealing
from rdmawire.traffic.edit.sealer import Sealer
from rdmawire.wire import rdmap
from rdmawire.wire.header import Header
from rdmawire.wire.mpa import FPDU, FPDUCRC, FPDULength, crc_of
from rdmawire.wire.tables import tables_of

INSIDE: Final[tuple[type[Header], ...]] = (
    *(table for module in ("ddp", "rdmap", "terminate") for table in tables_of(module)),
    FPDUCRC,
)
"""Headers that stand inside FPDUs."""


class Found(NamedTuple):
    """An FPDU of a stream, which begins at octet ``position`` of it.

    ``octets`` are those of it that are there, from its first one on, as ``fpdu`` counts too;
    ``judged``: all are, and CRCs are in use.
    """

    position: int
    octets: bytes
    fpdu: FPDU
    judged: bool


class Patch(NamedTuple):
    """Bits of a stream that turn over, from octet ``position`` on."""

    position: int
    change: bytes

    @property
    def end(self) -> int:
        """The octet behind them."""
        return self.position + len(self.change)


class FPDUSeal(Seal):
    """The CRC at the end of an FPDU, Markers and all. RFC 5044, 4.4."""

    table = FPDUCRC
    size = FPDUCRC.SIZE

    def __init__(self, end: int) -> None:
        super().__init__(end - self.size, end)

    def keep(self, old: bytes, new: bytearray, reach: int, end: int) -> None:  # noqa: ARG002
        change = crc_of(old[: self.at]) ^ crc_of(bytes(new[: self.at]))
        self.put(new, int.from_bytes(old[self.at :], "big") ^ change, end)

    def renew(self, new: bytearray, end: int) -> None:
        self.put(new, crc_of(bytes(new[: self.at])), end)


def has_business_inside(rules: Sequence[Rule], sealer: Sealer) -> bool:
    """Whether anything is to be done inside FPDUs."""
    return sealer.sealing is Sealing.ALL or any(rule.concerns(t) for rule in rules for t in INSIDE)


class FPDUEditor:
    """Applies rules to FPDUs."""

    def __init__(self, rules: Sequence[Rule], sealer: Sealer) -> None:
        self._rules = rules
        self._sealer = sealer

    def patches(self, found: Found, hosts: Hosts) -> Iterator[Patch]:
        """What changes in an FPDU that goes from one host to another."""
        new = bytearray(found.octets)
        seals = [FPDUSeal(len(new))] if found.judged else []
        self._change(found, hosts, seals, new)
        ends = ((seal, seal.end) for seal in seals)
        self._sealer.seal(ends, found.octets, new, len(new))
        crc = len(new) - FPDUCRC.SIZE
        for start, end in ((0, crc), (crc, len(new))):
            yield from _patch(found.octets[start:end], new[start:end], found.position + start)

    def _change(self, found: Found, hosts: Hosts, seals: Sequence[Seal], new: bytearray) -> None:
        """Change the fields of an FPDU, as far as it is there."""
        fpdu = found.fpdu
        old = fpdu.ulpdu_before(len(found.octets))
        places: list[Place] = []
        with suppress(WireError):  # what stands before is known all the same
            places.extend(
                Place(at, piece) for at, piece in rdmap.layout(old) if isinstance(piece, Header)
            )
        ulpdu = bytearray(old)
        for rule in self._rules:
            for op in rule.ops(Layout(places, hosts, seals)):
                op.run(old, ulpdu)
        for at, octet in enumerate(ulpdu):
            if octet != old[at]:
                new[fpdu.offset_of(FPDULength.SIZE + at)] = octet


def _patch(old: bytes, new: bytearray, position: int) -> Iterator[Patch]:
    """The bits that differ, if some do."""
    change = (int.from_bytes(old, "big") ^ int.from_bytes(new, "big")).to_bytes(len(old), "big")
    if any(change):
        bare = change.lstrip(b"\0")
        yield Patch(position + len(change) - len(bare), bare.rstrip(b"\0"))
