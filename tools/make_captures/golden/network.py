"""What the network has to do with it: marks and CNPs, pauses, and a second path.

IBA A17.9 (CNP), 17.2.8 (path migration); IEEE 802.1Q, 36 (priority flow control).
"""

from collections.abc import Iterator

from rdmawire.ib.congestion import CNP_INTERVAL
from rdmawire.units import gbps, us
from rdmawire.verbs import SendOpcode
from rdmawire.wire.inet import ECN
from tools.make_captures.golden.case import (
    CLIENT,
    SERVER,
    STEP,
    Action,
    Case,
    Migrate,
    Pause,
    Rearm,
    Receive,
    Work,
    case,
)
from tools.make_captures.golden.errors import work

_S = SendOpcode
_DSCP = 26
_PRIORITY = 3
_WRITES = 12


def network() -> Iterator[Case]:
    """Every case."""
    yield from _marks()
    yield from _pauses()
    yield from _migration()


def _marks() -> Iterator[Case]:
    """What a responder makes of each ECN codepoint, and how often."""
    for ipv6 in (False, True):
        for codepoint in ECN:
            yield case(
                f"ecn-{codepoint.name.lower().replace('_', '-')}-ipv{6 if ipv6 else 4}",
                f"a WRITE over IPv{6 if ipv6 else 4} whose packets come with {codepoint.name}",
                work(_S.RDMA_WRITE, 600),
                ipv6=ipv6,
                client={"traffic_class": _DSCP << 2 | codepoint},
                server={"notifies": True},
            )
    interval = CNP_INTERVAL // 2 + us(1)
    yield case(
        "cnp-not-too-often", f"five marked WRITEs: a CNP every {CNP_INTERVAL // 1000} us at most",
        *(Work(n * interval, CLIENT, _S.RDMA_WRITE, 5) for n in range(5)),
        client={"traffic_class": _DSCP << 2 | ECN.CE}, server={"notifies": True},
    )  # fmt: skip


def _pauses() -> Iterator[Case]:
    """A sender that is stopped in the middle, by priority; DSCP 26 has priority 3."""
    writes: list[Work] = [work(_S.RDMA_WRITE, 256) for _ in range(_WRITES)]
    rate = gbps(10)
    yield case(
        "pfc-pause", "WRITEs at 10 Gb/s; a pause for 64 quanta in the middle of them",
        *writes, Pause(us(1), SERVER, _PRIORITY, 64), rate=rate,
    )  # fmt: skip
    yield case(
        "pfc-resume", "WRITEs at 10 Gb/s; a long pause, then one for no time: go on",
        *writes, Pause(us(1), SERVER, _PRIORITY, 0xFFFF), Pause(us(6), SERVER, _PRIORITY, 0),
        rate=rate,
    )  # fmt: skip
    yield case(
        "pfc-other-priority", "a pause for a priority that nobody uses stops nothing",
        *writes, Pause(us(1), SERVER, 5, 0xFFFF), rate=rate,
    )  # fmt: skip


def _migration() -> Iterator[Case]:
    """MigReq, and the way over to the alternate path. IBA 17.2.8."""
    rearmed: list[Action] = [Rearm(0, CLIENT), Rearm(0, SERVER)]
    greetings: list[Action] = [
        Receive(0, SERVER, 5), Work(STEP, CLIENT, _S.SEND, 5),
        Receive(0, CLIENT, 5), Work(2 * STEP, SERVER, _S.SEND, 5),
    ]  # fmt: skip
    over = Work(4 * STEP, CLIENT, _S.RDMA_WRITE, 600)
    yield case(
        "migration-by-owner", "armed by a message each way, then sent over by the client's owner",
        *rearmed, *greetings, Migrate(3 * STEP, CLIENT), over,
    )  # fmt: skip
    yield case(
        "migration-by-loss", "armed, then the path loses all: after one retry, the other path",
        *rearmed, *greetings, over, both={"retry_cnt": 1}, lost=(5, 6, 7, 8, 9, 10),
    )  # fmt: skip
    yield case(
        "migration-rearmed-alone", "one end armed itself, the other did not: MigReq tells",
        rearmed[0], *greetings, over,
    )  # fmt: skip
