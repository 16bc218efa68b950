"""The codec against the layers of Construct and of Scapy: the same values, bytes and refusals.

Of each frame a :class:`CodecComparison` reads each header and each message with the codec and with
each library, and builds again what was read. The first difference is a violation, unless
:data:`ALLOWED` has a row for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import zip_longest
from typing import Any, Final, NamedTuple, Protocol

from rdmawire.capture import LinkType
from rdmawire.errors import FuzzError, WireError
from rdmawire.fuzz.exception_text import exception_text
from rdmawire.fuzz.frame_map import FrameMap, map_frame
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.other_values import CODEC_NAME
from rdmawire.terminal import quote, suggest
from rdmawire.wire import ib, mad, mpa, native, rdmap, roce
from rdmawire.wire.header import Header
from rdmawire.wire.layout import Piece, Placed, joined, size
from rdmawire.wire.packet import Packet

MessagePart = Mapping[str, Any] | bytes
"""The values of a header by row, or plain bytes."""
Read = tuple[Sequence[MessagePart], bytes]
"""The parts of a message, and the bytes that they build."""

LIBRARIES: Final = ("construct", "scapy")
"""The libraries that the codec is compared with; each is an extra of rdmawire."""
_MAX_TEXT: Final = 200


class View(Protocol):
    """How a library reads headers and messages: a module ``rdmawire.layers.LIBRARY.view``."""

    REFUSAL: type[Exception]
    MESSAGES: Mapping[str, Callable[[bytes], Read]]

    def parse_header(self, table: type[Header], data: bytes) -> Mapping[str, Any]:
        """Return the values of the header at the start of ``data``."""
        ...

    def build_header(self, table: type[Header], values: Mapping[str, Any]) -> bytes:
        """Build a header of its values."""
        ...


class Allowed(NamedTuple):
    """A difference that is not a violation: of a library, in a message, with the reason.

    ``refused`` are the words of the codec's refusal that it is about.
    """

    library: str
    message: str
    refused: str
    reason: str


ALLOWED: Final = (
    Allowed("scapy", "packet", "", "Scapy refuses no packet: bytes that do not fit are Raw"),
    Allowed("construct", "native packet", "before the VCRC", "bytes after the VCRC are `trailer`"),
    Allowed("construct", "frame", "is not RoCEv2's", "any UDP port is taken, as with `port=`"),
)
"""The differences that are known."""


def view_of(library: str) -> View:
    """Return the view of a library. Raises :class:`FuzzError` if it is not installed."""
    if library not in LIBRARIES:
        known = ", ".join(LIBRARIES)
        raise FuzzError(f"no library {quote(library)}{suggest(library, LIBRARIES)}: {known}")
    try:
        view: Any = import_module(f"rdmawire.layers.{library}.view")
    except ImportError as error:
        raise FuzzError(str(error)) from None
    found: View = view
    return found


class CodecDifference(NamedTuple):
    """What the codec and a library read or built differently; ``about`` says where in words.

    ``kind`` tells apart differences of the same place.
    """

    about: str
    codec: str
    library: str
    kind: str = ""


class CodecComparison:
    """Compares the codec with libraries; it is a parser of :class:`ParserFuzzer`.

    ``views`` are the libraries by name.
    """

    def __init__(self, views: Mapping[str, View]) -> None:
        self.name = "codec"
        self._views = dict(views)

    def judge(self, frames: Sequence[SeedFrame]) -> Violation | None:
        """Compare each frame; ``place`` of a violation is the index of the frame."""
        for index, frame in enumerate(frames):
            for library, view in self._views.items():
                found = next(_differences(frame, library, view), None)
                if found is not None:
                    return _violation(index, library, found)
        return None

    def judge_all(self, cases: Sequence[Sequence[SeedFrame]]) -> Iterator[Violation | None]:
        """Judge each case."""
        return map(self.judge, cases)


def _violation(index: int, library: str, found: CodecDifference) -> Violation:
    about = f"{found.about}{found.kind}"
    expected = f"{found.about}: {found.codec} ({CODEC_NAME})"
    happened = f"{found.about}: {found.library} ({library})"
    return Violation(index, f"{library}: {about}", expected, happened, "", f"{library} | {about}")


def _differences(frame: SeedFrame, library: str, view: View) -> Iterator[CodecDifference]:
    found = map_frame(frame.data, frame.link_type)
    for offset, header in found.headers:
        yield from _of_header(type(header), frame.data[offset:], view)
    for name, data in _messages(frame, found):
        if name in view.MESSAGES:
            yield from _of_message(name, data, library, view)


def _of_header(table: type[Header], data: bytes, view: View) -> Iterator[CodecDifference]:
    """Compare a header, and the same header without its last byte, which both must refuse."""
    header = table.parse(data)
    values, whole = values_of(header), data[: table.SIZE]
    yield from _compare(table.__name__, values, lambda: view.parse_header(table, whole))
    yield from _compare(
        f"{table.__name__} as built", whole.hex(), lambda: view.build_header(table, values).hex()
    )
    if not _refuses(view, lambda: view.parse_header(table, whole[:-1])):
        yield CodecDifference(f"{table.__name__} without its last byte", "refused", "accepted")


def _compare(about: str, wanted: Any, read: Callable[[], Any]) -> Iterator[CodecDifference]:
    try:
        found = read()
    except Exception as error:
        yield CodecDifference(about, _short(wanted), exception_text(error))
        return
    if found != wanted:
        yield CodecDifference(about, _short(wanted), _short(found))


def _refuses(view: View, read: Callable[[], object]) -> bool:
    try:
        read()
    except view.REFUSAL:
        return True
    return False


def _of_message(name: str, data: bytes, library: str, view: View) -> Iterator[CodecDifference]:
    """Compare a message: its parts and what they build, or that both refuse it."""
    read = view.MESSAGES[name]
    try:
        parts, built = CODEC[name](data)
    except WireError as error:
        if not _is_allowed(library, name, str(error)):
            yield from _not_refused(name, str(error), view, lambda: read(data))
        return
    try:
        other, rebuilt = read(data)
    except Exception as error:
        happened = exception_text(error)
        yield CodecDifference(name, "accepted", happened, " refused")
        return
    for number, (mine, its) in enumerate(zip_longest(parts, other)):
        if mine != its:
            yield _of_part(f"{name}, part {number}", mine, its)
            return
    if rebuilt != built:
        yield CodecDifference(f"{name} as built", built.hex(), rebuilt.hex())


def _of_part(about: str, mine: MessagePart | None, its: MessagePart | None) -> CodecDifference:
    """Name the first row that differs, if both are the same header."""
    if isinstance(mine, dict) and isinstance(its, dict) and mine.keys() == its.keys():
        row = next(name for name in mine if mine[name] != its[name])
        return CodecDifference(f"{about}: {row}", _short(mine[row]), _short(its[row]))
    return CodecDifference(about, _short(mine), _short(its))


def _not_refused(
    name: str, why: str, view: View, read: Callable[[], object]
) -> Iterator[CodecDifference]:
    try:
        read()
    except view.REFUSAL:
        return
    except Exception as error:
        happened = exception_text(error)
        yield CodecDifference(name, f"refused: {why}", happened, f": {type(error).__name__}")
        return
    yield CodecDifference(name, f"refused: {why}", "accepted", " accepted")


def _is_allowed(library: str, message: str, why: str) -> bool:
    return any(
        row.library == library and row.message == message and row.refused in why for row in ALLOWED
    )


def _short(value: Any) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


# The messages as the codec reads them.


def values_of(header: Header) -> dict[str, Any]:
    """Return the values of a header by row, as whole numbers, tuples of them, or bytes."""
    return {row.name: _plain(getattr(header, row.name)) for row in type(header).rows}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(int, value))
    return value if isinstance(value, bytes) else int(value)


def _parts(*pieces: Piece) -> list[MessagePart]:
    return [values_of(one) if isinstance(one, Header) else one for one in pieces if one != b""]


def _packet_parts(packet: Packet) -> list[MessagePart]:
    return _parts(packet.bth, *packet.extended, packet.payload, packet.pad)


def _packet(data: bytes) -> Read:
    packet = Packet.parse(data)
    return _packet_parts(packet), packet.build()


def _frame(data: bytes) -> Read:
    found = roce.parse(data)
    end = _parts(ib.ICRC(found.icrc), found.trailer)
    return [*_parts(*found.headers), *_packet_parts(found.packet), *end], found.build()


def _native(data: bytes) -> Read:
    found = native.parse(data)
    start = (found.lrh,) if found.grh is None else (found.lrh, found.grh)
    end = _parts(ib.ICRC(found.icrc), ib.VCRC(found.vcrc))
    return [*_parts(*start), *_packet_parts(found.packet), *end], found.build()


def _layout(layout: Callable[[bytes], Iterator[Placed]]) -> Callable[[bytes], Read]:
    def read(data: bytes) -> Read:
        """Read the pieces; bytes after an error are one piece."""
        pieces: list[Piece] = []
        end = 0
        try:
            for offset, piece in layout(data):
                pieces.append(piece)
                end = offset + size(piece)
        except WireError:
            pieces.append(data[end:])
        return _parts(*pieces), joined(*pieces)

    return read


def _fpdu(data: bytes) -> Read:
    found = mpa.parse_fpdu(data)
    segment, _ = CODEC["segment"](found.ulpdu)
    head = mpa.FPDULength(len(found.ulpdu))
    end = _parts(found.pad, mpa.FPDUCRC(found.crc))
    return [*_parts(head), *segment, *end], data[: found.size]


CODEC: Final[dict[str, Callable[[bytes], Read]]] = {
    "packet": _packet,
    "frame": _frame,
    "native packet": _native,
    "management datagram": _layout(mad.layout),
    "segment": _layout(rdmap.layout),
    "FPDU": _fpdu,
}
"""How the codec reads each message."""


def _messages(frame: SeedFrame, found: FrameMap) -> Iterator[tuple[str, bytes]]:
    """Yield the messages of a frame: their names in :data:`CODEC`, and their bytes."""
    data, bth = frame.data, found.find("bth")
    if frame.link_type == LinkType.ETHERNET and bth is not None:
        yield "frame", data
    if frame.link_type == LinkType.INFINIBAND:
        yield "native packet", data
    if bth is not None:
        yield "packet", data[bth.offset : -4]
    for label, name in _STARTS.items():
        located = found.find(label)
        if located is not None:
            yield name, data[located.offset :]


_STARTS: Final = {
    "mad": "management datagram",
    "directed_mad": "management datagram",
    "ddp": "segment",
    "mpa_fpdu": "FPDU",
}
"""The messages that begin with a header, by its label."""
