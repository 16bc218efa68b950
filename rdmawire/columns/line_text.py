"""The lines of ``rdmawire dissect`` for fast-path frames."""

from collections.abc import Iterable
from functools import partial

from rdmawire.columns.cell_parts import (
    CellConstant,
    CellPart,
    CellsOfBytes,
    CellsOfFrames,
    CellsOfHeader,
    CellsOfTail,
)
from rdmawire.columns.frame_text import FrameShape, OpcodeFrames, Tail
from rdmawire.columns.text_cells import Cells, formatted, seconds, side_by_side
from rdmawire.dissect.dissection import (
    Others,
    addresses_of,
    ends_and_protocol,
    has_info,
    info_of,
    protocol_of,
)
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH
from rdmawire.wire.show import byte_count


def line_parts(shape: FrameShape) -> Iterable[CellPart]:
    """Return the parts of the line of frames with these headers."""
    headers = [table() for table, _ in shape.headers]
    others: Others = {type(header): header for header in headers} | {BTH: BTH(opcode=shape.opcode)}
    yield CellsOfFrames(_numbers_and_times)
    yield _ends(shape, protocol_of(headers))
    yield from _info_parts(shape, others)
    yield CellsOfTail(shape, _payload)
    yield CellConstant("\n")


def _info_parts(shape: FrameShape, others: Others) -> Iterable[CellPart]:
    """The texts of the headers; only those before the BTH may be empty."""
    before, after = "", ", "
    for table, base in shape.headers:
        if table is BTH:
            after = ""
        if has_info(table, others):
            yield CellsOfHeader(table, base, partial(_info, others, before, after))
        if table is BTH:
            before = ", "


def _info(others: Others, before: str, after: str, header: Header) -> str:
    text = info_of(header, others)
    return f"{before}{text}{after}" if text else ""


def _numbers_and_times(some: OpcodeFrames) -> Cells:
    numbers, times = formatted(some.numbers, "6d"), seconds(some.times - some.first_ns, 13)
    return side_by_side(len(some), numbers, " ", times, " ")


def _ends(shape: FrameShape, protocol: str) -> CellPart:
    """The addresses of the innermost header that has some, and the protocol."""
    network, base = shape.path.network, shape.path.network_base
    rows = [row for row in network.rows if row.name in ("src", "dst")]
    first, size = rows[0].bit // 8, sum(row.width // 8 for row in rows)

    def written(data: bytes) -> str:
        half = len(data) // 2
        header = network(src=data[:half], dst=data[half:])
        return ends_and_protocol(*addresses_of([header]), protocol) + " "

    return CellsOfBytes(range(base + first, base + first + size), written)


def _payload(tail: Tail) -> str:
    if not tail.payload + tail.pad:
        return ""
    return f", {byte_count(tail.payload)}"
