"""Frames that are lost, repeated or late, and how the conversation goes on. IBA 9.7.

Each frame of each kind of message is lost once; numbers of frames are those of the case.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from rdmawire.units import us
from rdmawire.verbs import FENCE, SIGNALED, VERBS, SendOpcode
from rdmawire.wire.ib import Placement
from rdmawire.wire.serial import MODULUS
from tools.make_captures.golden.case import (
    CLIENT,
    SERVER,
    STEP,
    Action,
    Again,
    Case,
    Receive,
    Work,
    case,
)
from tools.make_captures.golden.errors import work

_S = SendOpcode


class Message(NamedTuple):
    """Work, and what each frame is that it takes when nothing is lost."""

    work: Work
    frames: tuple[str, ...]

    @property
    def word(self) -> str:
        """A name for it."""
        length = "" if self.work.do in _EIGHT else f"-{self.work.bytes}"
        return self.work.do.name.lower().replace("_", "-") + length

    def actions(self, at: int = 0) -> list[Action]:
        """The work, after the receive that it takes."""
        posted = self.work._replace(at=at)
        takes = VERBS[self.work.do].takes_receive
        return [Receive(0, SERVER, self.work.bytes), posted] if takes else [posted]


_EIGHT = (_S.ATOMIC_CMP_AND_SWP, _S.ATOMIC_FETCH_AND_ADD, _S.ATOMIC_WRITE)
_THREE = ("first", "middle", "last")
_REQUESTS = (*(f"{part} packet" for part in _THREE), "ACK")
_ONE = ("only packet", "ACK")
_RESPONSES = ("request", *(f"{part} response" for part in _THREE))
_RESPONSE = ("request", "response")

MESSAGES = (
    Message(work(_S.SEND, 5), _ONE),
    Message(work(_S.SEND, 600), _REQUESTS),
    Message(work(_S.SEND_WITH_IMM, 5, imm_data=0xCAFE0005), _ONE),
    Message(work(_S.RDMA_WRITE, 5), _ONE),
    Message(work(_S.RDMA_WRITE, 600), _REQUESTS),
    Message(work(_S.RDMA_WRITE_WITH_IMM, 600, imm_data=0xCAFE0600), _REQUESTS),
    Message(work(_S.RDMA_READ, 5), _RESPONSE),
    Message(work(_S.RDMA_READ, 600), _RESPONSES),
    Message(
        work(_S.ATOMIC_CMP_AND_SWP, 8, compare_add=0x312A_231C_150E_0700, swap=0xFEED_FACE),
        _RESPONSE,
    ),
    Message(work(_S.ATOMIC_FETCH_AND_ADD, 8, compare_add=1), _RESPONSE),
    Message(work(_S.ATOMIC_WRITE, 8), _RESPONSE),
    Message(work(_S.FLUSH, 8, placement=Placement.BOTH), _RESPONSE),
)


def retransmission() -> Iterator[Case]:
    """Every case."""
    for message in MESSAGES:
        yield from _lost(message)
        yield _repeated(message)
    yield from _several()
    yield from _wraps()
    yield from _ends()


def _lost(message: Message) -> Iterator[Case]:
    """Each of its frames, once: with nothing behind it, so that only the timeout tells."""
    for number, frame in enumerate(message.frames, 1):
        name = f"lost-{frame.replace(' ', '-').lower()}-of-{message.word}"
        shows = f"{message.work.do.name} of {message.work.bytes} bytes whose {frame} is lost"
        yield case(name, shows, *message.actions(), lost=(number,))


def _repeated(message: Message) -> Case:
    """The last request packet comes a second time: it is answered twice, and done once."""
    responses = len(message.frames) - 1 if message.frames[0] == "request" else 1
    return case(
        f"twice-{message.word}",
        f"{message.work.do.name} of {message.work.bytes} bytes whose last request comes again",
        *message.actions(), Again(STEP, CLIENT, len(message.frames) - responses),
    )  # fmt: skip


def _writes(count: int, size: int = 5) -> list[Work]:
    return [work(_S.RDMA_WRITE, size + n) for n in range(count)]


def _several() -> Iterator[Case]:
    """Several messages under way. IBA 9.7.3, 9.7.5.1.2."""
    yield case("go-back", "the first of five WRITEs is lost: one NAK, and all are sent again",
               *_writes(5), lost=(1,))  # fmt: skip
    yield case("go-back-middle", "the third of five WRITEs is lost: sent again from there",
               *_writes(5), lost=(3,))  # fmt: skip
    yield case("two-gaps", "the second and fourth of five WRITEs are lost: one NAK for both",
               *_writes(5), lost=(2, 4))  # fmt: skip
    yield case("nak-lost", "a WRITE and the NAK of the gap are lost: the timeout repeats all",
               *_writes(3), lost=(1, 4))  # fmt: skip
    yield case("nak-twice", "the NAK of a gap comes twice: gone back once", *_writes(3),
               Again(us(1) + 500, SERVER, 4), lost=(1,))  # fmt: skip
    yield case("overtaken", "the first of three WRITEs comes behind the others: a NAK, then an ACK",
               *_writes(3), late={1: us(1)})  # fmt: skip
    yield case("ack-lost-behind", "an ACK is lost, and the next one is for both",
               work(_S.RDMA_WRITE, 5), Work(STEP, CLIENT, _S.RDMA_WRITE, 6), lost=(2,))  # fmt: skip
    yield case("ack-twice", "an ACK comes twice: the second means nothing", *_writes(1),
               Again(STEP, SERVER, 2), Work(2 * STEP, CLIENT, _S.RDMA_WRITE, 6))  # fmt: skip
    yield case("timeout-of-several", "all of three WRITEs are lost", *_writes(3), lost=(1, 2, 3))
    yield from _implied()


def _implied() -> Iterator[Case]:
    """A response that is missing shows in the next answer: an implied NAK. IBA 9.7.5.1.2."""
    behind = work(_S.RDMA_WRITE, 5)
    for word, do, data in (
        ("read", _S.RDMA_READ, 600),
        ("atomic", _S.ATOMIC_FETCH_AND_ADD, 8),
    ):
        yield case(
            f"implied-nak-{word}", f"the last response to {do.name} is lost, the ACK behind is not",
            work(do, data, compare_add=1), behind, lost=(5 if data > 8 else 3,),
        )  # fmt: skip
    yield case(
        "implied-nak-middle", "of two READs the second response of the first is lost",
        work(_S.RDMA_READ, 600), work(_S.RDMA_READ, 300), lost=(4,),
    )  # fmt: skip
    yield case(
        "read-request-lost-behind", "a READ request is lost, the WRITE behind it is not",
        work(_S.RDMA_READ, 300), behind, lost=(1,),
    )  # fmt: skip
    yield case(
        "fenced-after-loss", "a fenced WRITE waits for a READ whose response was lost",
        work(_S.RDMA_READ, 5), work(_S.RDMA_WRITE, 5, flags=SIGNALED | FENCE), lost=(2,),
    )  # fmt: skip


def _wraps() -> Iterator[Case]:
    """PSNs go round at 2**24. IBA 9.7.1."""
    last = MODULUS - 1
    rows: dict[str, tuple[Message, int, tuple[int, ...]]] = {
        "send": (MESSAGES[1], last - 1, ()),
        "write": (MESSAGES[4], last - 1, ()),
        "read": (MESSAGES[7], last - 1, ()),
        "atomic": (MESSAGES[9], last, ()),
        "write-lost": (MESSAGES[4], last, (1,)),
        "read-lost": (MESSAGES[7], last - 1, (3,)),
        "ack-lost": (MESSAGES[4], last - 2, (4,)),
    }
    for word, (message, psn, lost) in rows.items():
        yield case(
            f"wrap-{word}",
            f"PSN wrap: {message.work.do.name} of {message.work.bytes} bytes from PSN {psn:#x} "
            "on, past 0xFFFFFF to 0",
            *message.actions(), *MESSAGES[3].actions(STEP),
            client={"sq_psn": psn}, lost=lost,
        )  # fmt: skip


def _ends() -> Iterator[Case]:
    """Retries that run out. IBA 9.7.6.1.3."""
    silent: dict[str, Any] = {"server": {"silent": True}}
    yield case("retries-run-out", "nobody answers: two retries, and the end", *_writes(2),
               both={"retry_cnt": 2}, **silent)  # fmt: skip
    yield case("no-retries", "nobody answers, and no retry is left", *_writes(1),
               both={"retry_cnt": 0}, **silent)  # fmt: skip
    yield case("retries-renewed", "progress gives all retries back: each of four ACKs is lost once",
               *(Work(n * us(1100), CLIENT, _S.RDMA_WRITE, 5) for n in range(4)),
               both={"retry_cnt": 1}, lost=(2, 6, 10, 14))  # fmt: skip
    for exponent in (1, 5, 10, 14):
        yield case(f"timeout-{exponent}", f"Local ACK Timeout {exponent}: the wait is 4.096 us "
                   f"times {1 << exponent}", *_writes(1), both={"timeout": exponent}, lost=(1,),
                   )  # fmt: skip
