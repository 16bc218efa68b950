"""Rules that set fields, whatever stood there, or add to them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rdmawire.traffic.edit.cut import Cut, Field
from rdmawire.traffic.edit.place import Layout
from rdmawire.traffic.edit.rule import Entry, Op, Rule
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC, VCRC, FlowControl
from rdmawire.wire.inet import TCP, UDP, IPv4
from rdmawire.wire.mpa import FPDUCRC

CHECKSUMS: Final[Mapping[type[Header], str]] = {
    IPv4: "checksum",
    UDP: "checksum",
    TCP: "checksum",
    ICRC: "crc",
    VCRC: "crc",
    FlowControl: "lpcrc",
    FPDUCRC: "crc",
}
"""Rows that are checksums: what they are set to stands there in the end."""


class AssignRule(Rule):
    """Sets a field in the innermost header that has it.

    ``fields`` are where the one thing that is meant stands in various headers, such as the TTL of
    IPv4 and the hop limit of IPv6. With ``adds``, the value is added to what stands there.
    """

    def __init__(
        self, text: str, fields: Sequence[Field], value: int, *, adds: bool = False
    ) -> None:
        self._entry = Entry(text)
        self.entries = (self._entry,)
        self._all = tuple(fields)
        self._value = value
        self._adds = adds
        self._fields = {each.table: each for each in fields if not _is_checksum(each)}
        self._checksums = {each.table: value for each in fields if _is_checksum(each)}

    def overrides(self) -> Mapping[type[Header], int]:
        return self._checksums

    def ops(self, layout: Layout) -> Iterator[Op]:
        if any(seal.table in self._checksums for seal in layout.seals):
            self._entry.used = True
        for offset, header in reversed(layout.places):
            found = self._fields.get(type(header))
            if found is not None:
                yield self._op(found.at(offset))
                return

    def fields(self, table: type[Header]) -> Sequence[Field]:
        return [each for each in self._all if each.table is table]

    def _op(self, cut: Cut) -> Op:
        def run(old: bytes, new: bytearray) -> None:
            self._entry.used = True
            value = self._value + cut.read(old) if self._adds else self._value
            cut.write(new, value & cut.mask)

        return Op(cut, run)


def _is_checksum(each: Field) -> bool:
    return CHECKSUMS.get(each.table) == each.row.name
