"""What no adapter sends, but may get: a script says it, and an adapter answers, or draws its own.

IBA 9.7.4.1.3 (order), 9.7.4.1.6 (lengths), 9.7.5.2 (syndromes), 9.9.2.3, A14, A19.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from rdmawire.ib import Fault
from rdmawire.verbs import LONGEST_MESSAGE, QPType, SendOpcode
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, FETH, XRCETH, Ack, Nak
from rdmawire.wire.opcode import Opcode
from tools.make_captures.golden.case import (
    CLIENT,
    SERVER,
    STEP,
    XRC_SRQ,
    Case,
    Memory,
    Receive,
    Say,
    case,
    text,
)
from tools.make_captures.golden.errors import work

_O = Opcode
_MTU = 256
_FULL = text(_MTU)
_TOO_MUCH = LONGEST_MESSAGE + 1
_RESERVED_CODES = (len(Nak), 31)
_SILENT: Mapping[str, Any] = {"silent": True}


class Packet(NamedTuple):
    """One packet of a script: with a RETH for so many bytes where there is one."""

    opcode: Opcode
    payload: bytes = b""
    dmalen: int | None = None

    def headers(self, memory: Memory) -> tuple[Header, ...]:
        """Those behind the BTH."""
        return () if self.dmalen is None else (memory.reth(self.dmalen),)


_SEND = Packet(_O.RC_SEND_FIRST, _FULL)
_WRITE = Packet(_O.RC_RDMA_WRITE_FIRST, _FULL, 600)
_ON = Packet(_O.RC_RDMA_WRITE_MIDDLE, _FULL)
_READ = Packet(_O.RC_RDMA_READ_REQUEST, b"", 8)
_SEND_MIDDLE, _SEND_LAST = Packet(_O.RC_SEND_MIDDLE, _FULL), Packet(_O.RC_SEND_LAST, b"last")
_WRITE_LAST = Packet(_O.RC_RDMA_WRITE_LAST, b"last")
_WRITE_ONLY = Packet(_O.RC_RDMA_WRITE_ONLY, b"five!", 5)

_OUT_OF_ORDER: dict[str, tuple[Packet, ...]] = {
    "send-middle-of-nothing": (_SEND_MIDDLE,),
    "send-last-of-nothing": (_SEND_LAST,),
    "write-middle-of-nothing": (_ON,),
    "write-last-of-nothing": (_WRITE_LAST,),
    "send-first-in-a-send": (_SEND, _SEND),
    "send-only-in-a-send": (_SEND, Packet(_O.RC_SEND_ONLY, b"only")),
    "write-middle-in-a-send": (_SEND, _ON),
    "write-last-in-a-send": (_SEND, _WRITE_LAST),
    "read-in-a-send": (_SEND, _READ),
    "write-first-in-a-write": (_WRITE, _WRITE),
    "write-only-in-a-write": (_WRITE, _WRITE_ONLY),
    "send-middle-in-a-write": (_WRITE, _SEND_MIDDLE),
    "send-last-in-a-write": (_WRITE, _SEND_LAST),
    "read-in-a-write": (_WRITE, _READ),
}
"""Packets in an order that no message has: the last one is where it cannot be."""

_OF_WRONG_LENGTH: dict[str, tuple[Packet, ...]] = {
    "send-first-not-full": (_SEND._replace(payload=_FULL[:-4]),),
    "send-first-over-full": (_SEND._replace(payload=text(_MTU + 4)),),
    "send-middle-not-full": (_SEND, _SEND_MIDDLE._replace(payload=_FULL[:-1])),
    "send-last-empty": (_SEND, _SEND_LAST._replace(payload=b"")),
    "send-last-over-full": (_SEND, _SEND_LAST._replace(payload=text(_MTU + 1))),
    "send-only-over-full": (Packet(_O.RC_SEND_ONLY, text(_MTU + 1)),),
    "write-first-not-full": (_WRITE._replace(payload=_FULL[:-4]),),
    "write-first-of-one-packet": (_WRITE._replace(dmalen=_MTU),),
    "write-first-too-much": (_WRITE._replace(dmalen=_TOO_MUCH),),
    "write-middle-not-full": (_WRITE, _ON._replace(payload=_FULL[:-1])),
    "write-last-empty": (_WRITE, _WRITE_LAST._replace(payload=b"")),
    "write-ends-early": (_WRITE, _WRITE_LAST),
    "write-ends-late": (_WRITE, _ON, _WRITE_LAST._replace(payload=text(89))),
    "write-goes-on": (_WRITE, _ON, _ON),
    "write-only-less-than-said": (_WRITE_ONLY._replace(dmalen=6),),
    "write-only-more-than-said": (_WRITE_ONLY._replace(dmalen=4),),
    "write-only-over-full": (_WRITE_ONLY._replace(payload=text(_MTU + 1), dmalen=_MTU + 1),),
    "read-too-much": (_READ._replace(dmalen=_TOO_MUCH),),
}
"""Payloads and lengths that no message has: the last packet is the one that is wrong."""


def scripted() -> Iterator[Case]:
    """Every case in which a script talks to an adapter."""
    for name, packets in _OUT_OF_ORDER.items():
        yield _said(name, "where it cannot be", packets, Fault.OP_SEQUENCE)
    for name, packets in _OF_WRONG_LENGTH.items():
        yield _said(name, "of a length that it cannot have", packets, Fault.LENGTH)
    for name, feth in (("no-placement", FETH(plt=0)), ("selectivity-2", FETH(sel=2, plt=1))):
        yield case(
            f"flush-{name}",
            f"FLUSH with a FETH that the standard gives no meaning: {name.replace('-', ' ')}",
            Say(0, CLIENT, _O.RC_FLUSH, headers=partial(_flush, feth)),
            client=_SILENT, fault=Fault.OP_VALID,
        )  # fmt: skip
    yield case(
        "xrc-unknown-srq", "XRC: a SEND to a shared receive queue that is not there",
        Say(0, CLIENT, _O.XRC_SEND_ONLY, headers=lambda _: (XRCETH(0, XRC_SRQ + 1),)),
        client=_SILENT, kind=QPType.XRC_INI, fault=Fault.OP_VALID,
    )  # fmt: skip
    yield from _told()


def _flush(feth: FETH, memory: Memory) -> tuple[Header, ...]:
    return feth, memory.reth(8)


def _said(name: str, what: str, packets: tuple[Packet, ...], fault: Fault) -> Case:
    says = [
        Say(0, CLIENT, packet.opcode, psn, packet.headers, packet.payload, {"ackreq": 1})
        for psn, packet in enumerate(packets)
    ]
    sends = packets[0].opcode.name.startswith("RC_SEND")
    receives = [Receive(0, SERVER, 600)] if sends else []
    shows = f"{packets[-1].opcode.name} {what}: {name.replace('-', ' ')}"
    return case(name, shows, *receives, *says, client=_SILENT, fault=fault)


def _told() -> Iterator[Case]:
    """Answers that a script gives to the first of two WRITEs."""
    acknowledged = _answer(2 * STEP, AETH(ack=Ack.ACK, value=31, msn=2), 1)
    for code in (*Nak, *_RESERVED_CODES):
        word = Nak(code).name if code < len(Nak) else "reserved"
        again = (acknowledged,) if code == Nak.PSN_SEQUENCE_ERROR else ()
        nak = _answer(STEP, AETH(ack=Ack.NAK, value=code))
        yield _answered(f"told-nak-{code}", f"NAK code {code} ({word})", nak, *again)
    reserved = _answer(STEP, AETH(ack=Ack.RESERVED))
    shows = "a syndrome of the reserved kind, which means nothing, then an ACK"
    yield _answered("told-reserved-syndrome", shows, reserved, acknowledged)
    ghost = _answer(STEP, AETH(ack=Ack.ACK, value=31, msn=9), 9)
    shows = "an ACK of a PSN that was never sent, which means nothing, then one of both"
    yield _answered("told-ghost-ack", shows, ghost, acknowledged)
    shows = "a READ response, which no WRITE asked for"
    aeth = AETH(ack=Ack.ACK, value=31, msn=1)
    read = Say(STEP, SERVER, _O.RC_RDMA_READ_RESPONSE_ONLY, 0, lambda _: (aeth,), b"read")
    yield _answered("told-read-response", shows, read)


def _answer(at: int, aeth: AETH, psn: int = 0) -> Say:
    return Say(at, SERVER, _O.RC_ACKNOWLEDGE, psn, lambda _: (aeth,))


def _answered(name: str, shows: str, *says: Say) -> Case:
    works = [work(SendOpcode.RDMA_WRITE, 5), work(SendOpcode.RDMA_WRITE, 6)]
    return case(name, f"two WRITEs are answered with {shows}", *works, *says, server=_SILENT)
