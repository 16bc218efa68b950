"""The index of vectors: every opcode, syndrome, message, code and encapsulation, in tables.

The rows of a table come from the tables of the wire and of the walk; the table finds those that a
frame shows.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from rdmawire.capture import open_capture
from rdmawire.capture.record import LinkType
from rdmawire.decode import PROTOCOLS, By, Selected, Step
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import FrameWalk
from rdmawire.dissect.walk import Session
from rdmawire.wire import cm, ib, mpa, rdmap, terminate
from rdmawire.wire.cm import (
    APStatus,
    CMAttribute,
    FailoverAccepted,
    Message,
    RejectReason,
    SIDRStatus,
)
from rdmawire.wire.erf import ERFType
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, CREDITS, LNH, Ack, Nak
from rdmawire.wire.inet import ECN, EtherType, IPProtocol, IPv4, IPv6, MACControl
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import ManagementClass
from rdmawire.wire.opcode import SHAPES, opcode_word


class IndexedFrame(NamedTuple):
    """A frame: its dissection, and the steps of the walk."""

    dissection: Dissection
    steps: tuple[Selected, ...]

    def headers(self, table: type[Header]) -> Iterator[Any]:
        """Return the headers of one table."""
        return (header for header in self.dissection.headers() if isinstance(header, table))


class IndexTable(NamedTuple):
    """Rows that must each have a vector, and a function for those that a frame shows."""

    title: str
    rows: tuple[str, ...]
    shows: Callable[[IndexedFrame], Iterable[str]]


# The transport.


def _opcodes(frame: IndexedFrame) -> Iterator[str]:
    return (opcode_word(bth.opcode) for bth in frame.headers(BTH))


def _syndrome(aeth: ib.AETH) -> str:
    """Return the row of a syndrome."""
    type_ = Ack(aeth.ack)
    if type_ is Ack.RESERVED:
        return "reserved kind"
    return f"{type_.name} {aeth.value}: {_WORDS[type_](aeth.value)}"


def _nak_words(value: int) -> str:
    return Nak(value).name if value < len(Nak) else "reserved code"


_WORDS: dict[Ack, Callable[[int], str]] = {
    Ack.ACK: ib.credit_words,
    Ack.RNR_NAK: ib.rnr_words,
    Ack.NAK: _nak_words,
}


_VALUES = {Ack.ACK: len(CREDITS) + 1, Ack.RNR_NAK: len(ib.RNR_TIMER_NS), Ack.NAK: len(Nak)}
_SYNDROMES = (
    *(_syndrome(ib.AETH(0, ack, value)) for ack, most in _VALUES.items() for value in range(most)),
    _syndrome(ib.AETH(0, Ack.RESERVED)),
)
_FLAGS = {
    "SE": "se", "AckReq": "ackreq", "MigReq": "migreq", "FECN": "fecn", "BECN": "becn",
}  # fmt: skip
_PADS = tuple(f"pad of {pad}" for pad in range(4))


def _of_bth(frame: IndexedFrame) -> Iterator[str]:
    for bth in frame.headers(BTH):
        yield from (f"{name} {getattr(bth, field)}" for name, field in _FLAGS.items())
        yield _PADS[bth.padcnt]
        for ip in (*frame.headers(IPv4), *frame.headers(IPv6)):
            yield f"ECN {ECN(ip.ecn).name}"


def _flushes(frame: IndexedFrame) -> Iterator[str]:
    return (_flush(feth) for feth in frame.headers(ib.FETH))


def _flush(feth: ib.FETH) -> str:
    return f"{feth.word('plt')} of {feth.word('sel')}"


_FLUSHES = tuple(_flush(ib.FETH(0, s, p)) for s, p in product(ib.Selectivity, ib.Placement))


# Connection management.


def _messages(frame: IndexedFrame) -> Iterator[str]:
    for mad in frame.headers(MAD):
        if mad.mgmt_class == ManagementClass.COM_MGT and mad.attribute_id in set(CMAttribute):
            yield CMAttribute(mad.attribute_id).name


_CODES: tuple[tuple[type[Header], str, type[Any]], ...] = (
    (cm.REJ, "reason", RejectReason),
    (cm.REJ, "message_rejected", Message),
    (cm.MRA, "message_mraed", Message),
    (cm.REP, "failover_accepted", FailoverAccepted),
    (cm.SIDRREP, "status", SIDRStatus),
    (cm.APR, "ap_status", APStatus),
)


def _code(table: type[Header], field: str, word: str) -> str:
    return f"{table.__name__}.{field} {word}"


def _codes(frame: IndexedFrame) -> Iterator[str]:
    for table, field, _ in _CODES:
        yield from (_code(table, field, found.word(field)) for found in frame.headers(table))


# iWARP.


def _rdmap(frame: IndexedFrame) -> Iterator[str]:
    return (rdmap.opcode_word(found.opcode) for found in frame.headers(rdmap.Control))


def _atomics(frame: IndexedFrame) -> Iterator[str]:
    return (found.word("aopcode") for found in frame.headers(rdmap.AtomicRequestHeader))


def _terminated(control: terminate.TerminateControl) -> str:
    words = (control.word(field) for field in ("layer", "etype", "error_code"))
    return " ".join(filter(None, words))


_LAYER, _DDP = terminate.Layer, terminate.DDPErrorType
_ERRORS: tuple[tuple[int, int, int], ...] = (
    *product([_LAYER.RDMA], terminate.RDMAErrorType, terminate.RDMAError),
    *product([_LAYER.DDP], [_DDP.TAGGED_BUFFER_ERROR], terminate.TaggedError),
    *product([_LAYER.DDP], [_DDP.UNTAGGED_BUFFER_ERROR], terminate.UntaggedError),
    *product([_LAYER.DDP], [_DDP.LOCAL_CATASTROPHIC_ERROR, _DDP.RESERVED_FOR_LLP], [0]),
    *product([_LAYER.LLP], terminate.LLPErrorType, terminate.MPAError),
)
_TERMINATES = tuple(
    dict.fromkeys(_terminated(terminate.TerminateControl(*error)) for error in _ERRORS)
)


def _terminates(frame: IndexedFrame) -> Iterator[str]:
    return map(_terminated, frame.headers(terminate.TerminateControl))


_START_UPS = (mpa.MPARequest, mpa.MPAReply)
_ASKS = {"Markers": "m", "CRC": "c"}


def _start_up(table: type[Header], revision: int, what: str) -> str:
    return f"{table.__name__} of revision {revision}{what}"


def _start_ups(frame: IndexedFrame) -> Iterator[str]:
    for table in _START_UPS:
        for found in frame.headers(table):
            make = partial(_start_up, table, found.rev)
            yield make("")
            yield from (
                make(f" with {ask}") for ask, field in _ASKS.items() if getattr(found, field)
            )
            if table is mpa.MPAReply and found.r:
                yield make(", rejected")


def _every_start_up() -> Iterator[str]:
    for table, revision in product(_START_UPS, (1, 2)):
        rejected = [", rejected"] if table is mpa.MPAReply else []
        for what in ("", *(f" with {ask}" for ask in _ASKS), *rejected):
            yield _start_up(table, revision, what)


# Encapsulations.

_NAMES: Mapping[str, type[Any]] = {
    By.LINK: LinkType,
    By.ETHERTYPE: EtherType,
    By.MAC_CONTROL: MACControl,
    By.IP: IPProtocol,
    By.ERF: ERFType,
    By.LNH: LNH,
}
"""The selectors of steps whose keys have names; UDP's are port numbers."""


def _carriage(selected: Selected) -> str:
    selector, key = selected
    return f"{selector} {_NAMES[selector](key).name if selector in _NAMES else key}"


_SELECTED = dict.fromkeys(
    found
    for found in PROTOCOLS
    if found[0] in (*_NAMES, By.UDP) and found != (By.IP, IPProtocol.ICMPV6)
)
"""What carries a header. ICMPv6 is known by its checksum alone."""
_CARRIAGES = tuple(map(_carriage, _SELECTED))


def _carriages(frame: IndexedFrame) -> Iterator[str]:
    return (_carriage(step) for step in frame.steps if step in _SELECTED)


TABLES: Mapping[str, IndexTable] = {
    "opcodes": IndexTable(
        "Opcodes of the InfiniBand transport",
        tuple(shape.name for _, shape in sorted(SHAPES.items())),
        _opcodes,
    ),
    "syndromes": IndexTable(
        "AETH syndromes: credits, RNR timers, NAK codes",
        _SYNDROMES,
        lambda frame: map(_syndrome, frame.headers(ib.AETH)),
    ),
    "bth": IndexTable(
        "Bits of the BTH, pad counts, and ECN of the IP header",
        (
            *(f"{name} {value}" for name in _FLAGS for value in (0, 1)),
            *_PADS,
            *(f"ECN {codepoint.name}" for codepoint in ECN),
        ),
        _of_bth,
    ),
    "flushes": IndexTable("FLUSH: placement types and selectivity levels", _FLUSHES, _flushes),
    "connections": IndexTable(
        "Messages of connection management",
        tuple(attribute.name for attribute in CMAttribute),
        _messages,
    ),
    "connection_codes": IndexTable(
        "Reasons and statuses of connection management",
        tuple(_code(table, field, v.name) for table, field, values in _CODES for v in values),
        _codes,
    ),
    "rdmap": IndexTable(
        "Opcodes of RDMAP", tuple(opcode.name for opcode in rdmap.RDMAPOpcode), _rdmap
    ),
    "rdmap_atomics": IndexTable(
        "Atomic operations of RDMAP", tuple(one.name for one in rdmap.AtomicOpcode), _atomics
    ),
    "terminates": IndexTable("Errors of Terminate messages", _TERMINATES, _terminates),
    "start_ups": IndexTable("MPA start-up", tuple(_every_start_up()), _start_ups),
    "carriages": IndexTable("Encapsulations", _CARRIAGES, _carriages),
}
"""Everything that must have a vector, by its name in the index of the shipped captures."""


class _Steps(dict[Selected, Step]):
    """The steps of a walk; records those that are looked up."""

    def __init__(self) -> None:
        super().__init__(PROTOCOLS)
        self.taken: list[Selected] = []

    def get(self, selected: Selected, default: Any = None) -> Any:
        """Return the next step."""
        self.taken.append(selected)
        return super().get(selected, default)


def frames(path: Path) -> Generator[IndexedFrame, None, None]:
    """Yield each frame of a capture."""
    session = Session()
    with open_capture(path) as reader:
        for number, record in enumerate(reader, 1):
            dissection = Dissection(number, record.data, record.length, record.time_ns)
            steps = _Steps()
            FrameWalk(dissection, session).run((By.LINK, record.link_type), steps)
            yield IndexedFrame(dissection, tuple(steps.taken))
