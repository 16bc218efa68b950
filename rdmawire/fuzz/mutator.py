"""Random mutations of frames: of each header by its table, of lengths, of order and of bytes."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from rdmawire.decode import Located
from rdmawire.fuzz.frame_map import FrameMap, map_frame
from rdmawire.fuzz.frame_mutation import Mutant, Mutation, SeedFrame
from rdmawire.fuzz.seed_corpus import SeedCorpus
from rdmawire.wire.header import Header, Row
from rdmawire.wire.ib import BTH, LNH
from rdmawire.wire.inet import EtherType, IPProtocol
from rdmawire.wire.opcode import SHAPES
from rdmawire.wire.tables import tables

MAX_SEQUENCE: Final = 12
"""Frames of a random sequence."""
_LENGTH_ROWS: Final = {
    ("lrh", "pktlen"), ("grh", "paylen"), ("ip", "total_length"), ("ip", "ihl"),
    ("ipv6", "payload_length"), ("udp", "length"), ("tcp", "data_offset"), ("bth", "padcnt"),
    ("reth", "dmalen"), ("mpa_fpdu", "ulpdu_length"), ("mpa_request", "pd_length"),
    ("mpa_reply", "pd_length"), ("rdmap_read_request", "rdma_read_message_size"),
}  # fmt: skip
"""Rows that count bytes or words of what follows, by label and name."""
_SELECTORS: Final[dict[str, Sequence[int]]] = {
    "type": [int(one) for one in EtherType],
    "protocol": [int(one) for one in IPProtocol],
    "next_header": [int(one) for one in IPProtocol],
    "nxthdr": (0x1B, 0),
    "lnh": [int(one) for one in LNH],
    "dstport": (4791, 4790, 4789, 0, 65535),
}
"""Plausible values of rows that select the next header, by the row's name."""
_OPCODES: Final = sorted(SHAPES)


def boundary_values(row: Row, old: int) -> list[int]:
    """Return values near the bounds of a row: of its width, its enum and its present value."""
    top = (1 << row.width) - 1
    near = [0, 1, top, top - 1, top >> 1, (top >> 1) + 1]
    near += [old - 1, old + 1, *(old ^ (1 << bit) for bit in range(0, row.width, _step(row)))]
    for meaning in row.meanings():
        members: list[int] = [] if meaning.enum is None else [one.value for one in meaning.enum]
        near += [value + change for value in members for change in (0, 1, -1)]
    near += _SELECTORS.get(row.name, ())
    return sorted({value for value in near if 0 <= value <= top and value != old})


def _step(row: Row) -> int:
    """Distance of the single bits that are tried: all of a short row, some of a long one."""
    return max(row.width // 16, 1)


def number_of(header: Header, row: Row, index: int = 0) -> int:
    """Return the value of a row as a number."""
    value: Any = getattr(header, row.name)
    if row.is_bytes:
        return int.from_bytes(value, "big")
    return int(value[index]) if row.times > 1 else int(value)


def _named(found: FrameMap, located: Located) -> tuple[str, int]:
    """The label of a header, and which of those with this label it is."""
    label = type(located.header).label
    same = [one.offset for one in found.headers if type(one.header).label == label]
    return label, same.index(located.offset)


class Mutator:
    """Draws mutants of the frames of a corpus from ``random``."""

    def __init__(self, random: Random, corpus: SeedCorpus) -> None:
        self._random = random
        self._corpus = corpus

    def mutant(self) -> Mutant:
        """Return a mutant of a random frame."""
        return self.mutate(self._corpus.draw(self._random))

    def sequence(self) -> tuple[Mutant, ...]:
        """Return consecutive frames of a capture, of which some are mutants or changed in order."""
        random = self._random
        frames = self._corpus.draw_sequence(random, random.randrange(2, MAX_SEQUENCE + 1))
        mutants = [Mutant(frame) for frame in frames]
        index = random.randrange(len(mutants))
        number = random.random()
        if number < 0.15:
            del mutants[index]
        elif number < 0.3:
            mutants.insert(index, mutants[index])
        elif number < 0.4:
            mutants.insert(index, Mutant(self._corpus.draw(random)))
        if number > 0.3 or not mutants:
            mutants[index : index + 1] = [self.mutate(frames[index])]
        return tuple(mutants)

    def mutate(self, frame: SeedFrame) -> Mutant:
        """Return a mutant of a frame, with one to three mutations."""
        random = self._random
        found = map_frame(frame.data, frame.link_type)
        count = random.choice((1, 1, 1, 1, 2, 2, 3))
        mutations = tuple(self.mutation(frame, found) for _ in range(count))
        checksum = random.choice(_CHECKSUMS)
        return Mutant(frame, mutations, checksum)

    def mutation(self, frame: SeedFrame, found: FrameMap) -> Mutation:
        """Return a mutation of a frame whose map is ``found``."""
        kinds = _MUTATIONS if found.headers else _BYTES
        return self._random.choice(kinds)(self, frame, found)

    def _lengths(self) -> bool:
        return self._random.random() < 0.6

    def _located(self, found: FrameMap) -> Located:
        """A header, inner ones more often than outer ones."""
        headers, random = found.headers, self._random
        return headers[max(random.randrange(len(headers)), random.randrange(len(headers)))]

    def _row(self, frame: SeedFrame, found: FrameMap) -> Mutation:  # noqa: ARG002
        return self.set_row(found)

    def set_row(self, found: FrameMap) -> Mutation:
        """Set a row of one of the headers of a map."""
        located = self._located(found)
        return self._set(found, located, self._random.choice(type(located.header).rows))

    def _set(self, found: FrameMap, located: Located, row: Row) -> Mutation:
        """Set a row to a value near its bounds, or to any."""
        random = self._random
        index = random.randrange(row.times)
        old = number_of(located.header, row, index)
        near = boundary_values(row, old)
        value = (
            random.choice(near)
            if near and random.random() < 0.85
            else random.getrandbits(row.width)
        )
        return Mutation("set", *_named(found, located), row.name, index, value)

    def _length(self, frame: SeedFrame, found: FrameMap) -> Mutation:
        """Change a length by a few bytes, or to a bound."""
        random = self._random
        counting = [
            (located, row)
            for located in found.headers
            for row in type(located.header).rows
            if (type(located.header).label, row.name) in _LENGTH_ROWS
        ]
        if not counting:
            return self._row(frame, found)
        located, row = random.choice(counting)
        if random.random() < 0.3:
            return self._set(found, located, row)
        old = number_of(located.header, row)
        value = (old + random.choice((-8, -4, -2, -1, 1, 2, 4, 8))) % (1 << row.width)
        return Mutation("set", *_named(found, located), row.name, 0, value)

    def _opcode(self, frame: SeedFrame, found: FrameMap) -> Mutation:
        located = next((one for one in found.headers if isinstance(one.header, BTH)), None)
        if located is None:
            return self._row(frame, found)
        opcode = self._random.choice(_OPCODES)
        return Mutation("set", *_named(found, located), "opcode", 0, opcode)

    def _reserved(self, frame: SeedFrame, found: FrameMap) -> Mutation:
        """Set a bit of a reserved row."""
        rows = [
            (located, row)
            for located in found.headers
            for row in type(located.header).rows
            if row.name.startswith(("res", "rsv", "rb")) and not row.is_bytes and row.times == 1
        ]
        if not rows:
            return self._row(frame, found)
        located, row = self._random.choice(rows)
        value = number_of(located.header, row) ^ 1 << self._random.randrange(row.width)
        return Mutation("set", *_named(found, located), row.name, 0, value)

    def _structure(self, frame: SeedFrame, found: FrameMap) -> Mutation:  # noqa: ARG002
        """Drop, repeat or add a header."""
        random = self._random
        kind = random.choice(("drop", "repeat", "insert"))
        named, lengths = _named(found, self._located(found)), self._lengths()
        if kind != "insert":
            return Mutation(kind, *named, lengths=lengths)
        table = random.choice(tables())
        data = random.choice((b"", random.randbytes(table.SIZE), bytes(table.SIZE)))
        return Mutation(kind, *named, row=table.label, data=data, lengths=lengths)

    def _truncate(self, frame: SeedFrame, found: FrameMap) -> Mutation:  # noqa: ARG002
        offset = self._random.randrange(len(frame.data) or 1)
        return Mutation("truncate", offset=offset, lengths=self._lengths())

    def _bytes(self, frame: SeedFrame, found: FrameMap) -> Mutation:  # noqa: ARG002
        random = self._random
        size = len(frame.data)
        offset = random.randrange(size or 1)
        width = min(random.choice((1, 1, 1, 2, 4)), size - offset)
        old = int.from_bytes(frame.data[offset : offset + width], "big")
        top = (1 << 8 * width) - 1
        new = random.choice((0, top, old ^ 1 << random.randrange(8 * width or 1), old + 1, old - 1))
        return Mutation("write", offset=offset, data=(new & top).to_bytes(width, "big"))

    def _remove(self, frame: SeedFrame, found: FrameMap) -> Mutation:  # noqa: ARG002
        random = self._random
        offset = random.randrange(len(frame.data) or 1)
        return Mutation(
            "remove", offset=offset, value=random.choice((1, 2, 4, 8, 64)), lengths=self._lengths()
        )

    def _extend(self, frame: SeedFrame, found: FrameMap) -> Mutation:  # noqa: ARG002
        random = self._random
        data = random.choice((bytes, random.randbytes))(random.choice((1, 2, 3, 4, 16, 300)))
        offset = random.choice((len(frame.data), random.randrange(len(frame.data) + 1)))
        return Mutation("extend", offset=offset, data=data, lengths=self._lengths())

    def _splice(self, frame: SeedFrame, found: FrameMap) -> Mutation:
        """The rest of another frame: at a header of each, or anywhere."""
        random = self._random
        other = self._corpus.draw(random)
        others = map_frame(other.data, other.link_type).headers
        if found.headers and others and random.random() < 0.6:
            offset, start = self._located(found).offset, random.choice(others).offset
        else:
            offset = random.randrange(len(frame.data) or 1)
            start = random.randrange(len(other.data) or 1)
        return Mutation("splice", offset=offset, data=other.data[start:], lengths=self._lengths())


_Drawn = Callable[[Mutator, SeedFrame, FrameMap], Mutation]
_BYTES: Final[tuple[_Drawn, ...]] = (
    *(Mutator._bytes,) * 4,
    *(Mutator._remove,) * 2,
    Mutator._extend,
    Mutator._truncate,
    Mutator._splice,
)
"""Mutations of bytes without headers."""
_MUTATIONS: Final[tuple[_Drawn, ...]] = (
    *(Mutator._row,) * 8,
    *(Mutator._length,) * 5,
    *(Mutator._opcode,) * 3,
    *(Mutator._reserved,) * 1,
    *(Mutator._structure,) * 4,
    *(Mutator._truncate,) * 3,
    *_BYTES,
)
"""Mutations; one that is listed more often is drawn more often."""
_CHECKSUMS: Final = (*("GOOD",) * 8, "STALE", "BROKEN")
