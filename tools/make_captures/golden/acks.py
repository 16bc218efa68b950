"""What acknowledges say: for how many they are, credits, timers of who is not ready.

IBA 9.7.5.1, 9.7.5.2.8, 9.7.7.2, 9.2.3 (solicited events), 9.2.8 (AckReq).
"""

from collections.abc import Iterator

from rdmawire.units import us
from rdmawire.verbs import FENCE, SIGNALED, SOLICITED, SendOpcode
from rdmawire.wire.ib import CREDITS, RNR_TIMER_NS
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
_SEND = work(_S.SEND, 5)
_READY = Receive(0, SERVER, 5)


def acks() -> Iterator[Case]:
    """Every case about acknowledges that tell of success."""
    yield case("credits-every-count", "every credit count: receives are posted, a WRITE asks",
               *_counts())  # fmt: skip
    yield case("credits-none-kept", "31: a shared receive queue promises nobody a receive",
               _READY, work(_S.RDMA_WRITE, 5), server={"shared": True})  # fmt: skip
    yield case(
        "credits-held-back",
        "four SENDs where the peer told of two receives: the others wait for its next word",
        Receive(0, SERVER, 5, times=2),
        work(_S.RDMA_WRITE, 5),
        *(Work(STEP, CLIENT, _S.SEND, 5) for _ in range(4)),
        Receive(2 * STEP, SERVER, 5, times=2),
    )
    yield case(
        "coalesced", "eight WRITEs that arrive at once: one ACK is for all",
        *(work(_S.RDMA_WRITE, data) for data in range(8)),
    )  # fmt: skip
    yield case(
        "ack-asked-meanwhile", "a WRITE of 70 packets: the 64th asks for an ACK, and the last",
        work(_S.RDMA_WRITE, 70 * 256),
    )  # fmt: skip
    yield from _orders()
    yield from _solicited()


def _counts() -> Iterator[Action]:
    """As many receives as each count stands for, and a WRITE whose ACK tells of them."""
    before = 0
    for number, receives in enumerate(CREDITS):
        at = number * STEP
        if receives > before:
            yield Receive(at, SERVER, 0, times=receives - before)
        yield Work(at, CLIENT, _S.RDMA_WRITE, 1)
        before = receives


def _orders() -> Iterator[Case]:
    """READs and what stands around them."""
    yield case(
        "reads-acknowledge", "WRITEs before a READ are acknowledged before its response",
        work(_S.RDMA_WRITE, 5), work(_S.RDMA_WRITE, 300), work(_S.RDMA_READ, 300),
    )  # fmt: skip
    yield case(
        "reads-at-once", "six READs and atomics where four may be under way",
        *(work(_S.RDMA_READ, data) for data in (0, 8, 256, 600)),
        work(_S.ATOMIC_FETCH_AND_ADD, 8, compare_add=1), work(_S.RDMA_READ, 8),
    )  # fmt: skip
    yield case(
        "fence", "a WRITE that waits for the READ before it, and one that does not",
        work(_S.RDMA_READ, 600), work(_S.RDMA_WRITE, 5),
        work(_S.RDMA_READ, 600), work(_S.RDMA_WRITE, 5, flags=SIGNALED | FENCE),
    )  # fmt: skip
    yield case(
        "both-ways", "both ends send and read at once",
        *(Receive(0, who, 600) for who in (CLIENT, SERVER)),
        *(Work(0, who, do, 600) for who in (CLIENT, SERVER) for do in (_S.SEND, _S.RDMA_READ)),
    )  # fmt: skip


def _solicited() -> Iterator[Case]:
    """The SE bit, in the last packet of what takes a receive."""
    flags = SIGNALED | SOLICITED
    yield case(
        "solicited", "SEND and WRITE with an immediate that ask for an event at the receiver",
        *(Receive(0, SERVER, 600) for _ in range(4)),
        *(work(do, data, flags=flags) for do in (_S.SEND, _S.RDMA_WRITE_WITH_IMM)
          for data in (5, 600)),
    )  # fmt: skip


def rnr() -> Iterator[Case]:
    """A receiver that is not ready: every timer, and how it ends."""
    for timer, wait in enumerate(RNR_TIMER_NS):
        yield case(
            f"rnr-timer-{timer}", f"a SEND without a receive: come back in {wait / 1e6:.2f} ms",
            _SEND, _READY._replace(at=wait // 2), server={"min_rnr_timer": timer},
        )  # fmt: skip
    yield case("rnr-retries-run-out", "no receive ever comes: three retries, and the end", _SEND,
               work(_S.SEND, 6))  # fmt: skip
    yield case(
        "rnr-without-end", "rnr_retry 7 has no end: the receive comes after nine tries",
        _SEND, _READY._replace(at=9 * us(12)), both={"rnr_retry": 7},
    )  # fmt: skip
    for do, data in ((_S.SEND, 600), (_S.RDMA_WRITE_WITH_IMM, 5), (_S.RDMA_WRITE_WITH_IMM, 600)):
        yield case(
            f"rnr-{do.name.lower().replace('_', '-')}-{data}",
            f"{do.name} of {data} bytes without a receive",
            work(do, data), Receive(us(5), SERVER, data),
        )  # fmt: skip
    yield case(
        "rnr-behind-a-write", "what is done before the receiver was not ready stays done",
        work(_S.RDMA_WRITE, 5), _SEND, work(_S.RDMA_WRITE, 6), _READY._replace(at=us(5)),
    )  # fmt: skip
    yield case("rnr-nak-lost", "the RNR NAK is lost: the timeout repeats the SEND", _SEND,
               _READY._replace(at=us(5)), lost=(2,))  # fmt: skip
    yield case("rnr-nak-twice", "the RNR NAK comes twice: the second means nothing", _SEND,
               Again(us(1) + 500, SERVER, 2), _READY._replace(at=us(5)))  # fmt: skip
