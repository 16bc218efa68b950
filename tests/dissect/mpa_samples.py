"""What the tests of MPA streams are made of: DDP segments, FPDUs, connections, checks."""

import random
from itertools import product

from rdmawire.dissect.mpa_event import (
    CRCStatus,
    Event,
    Forgotten,
    Fpdu,
    Lost,
    NotIwarp,
    PartialFpdu,
    Skipped,
    StartUp,
)
from rdmawire.dissect.mpa_framing import MPAConnection
from rdmawire.dissect.tcp import Data, Hole, Segment
from rdmawire.wire.mpa import MPAReply, MPARequest, build_fpdu
from rdmawire.wire.rdmap import RDMAPOpcode, ReadRequestHeader, segment

GOOD, BAD, ABSENT = CRCStatus

Feed = list[tuple[int, bytes]]

STREAMS = list(product([False, True], [False, True]))
"""With and without CRC, with and without Markers."""


def send(length: int, msn: int = 1) -> bytes:
    return segment(RDMAPOpcode.SEND, bytes(i * 7 % 251 for i in range(length)), msn=msn)


def arrive(
    connection: MPAConnection, way: int, position: int, data: bytes, *, joined: bool = False
) -> list[Event]:
    """Events of a TCP segment that comes in order."""
    piece = Data(position, data)
    whole = Segment(position, len(data), len(data), (piece,))
    return connection.receive(way, whole, joined=joined)


def lose(connection: MPAConnection, way: int, start: int, end: int, behind: bytes) -> list[Event]:
    """Events of a TCP segment before which bytes are missing."""
    pieces = (Hole(start, end - start), Data(end, behind))
    return connection.receive(way, Segment(end, len(behind), len(behind), pieces), joined=False)


def started(
    *, m: tuple[int, int] = (0, 0), c: tuple[int, int] = (0, 0), joined: bool = False
) -> MPAConnection:
    """A connection after start-up frames with these bits; 20 bytes have come each way."""
    connection = MPAConnection()
    arrive(connection, 0, 0, MPARequest(m=m[0], c=c[0]).build(), joined=joined)
    arrive(connection, 1, 0, MPAReply(m=m[1], c=c[1]).build(), joined=joined)
    return connection


def fpdus(
    ulpdus: list[bytes], *, crc: bool = True, markers: bool = False, position: int = 0
) -> list[bytes]:
    """FPDUs one behind the other, the first one at this position of the stream."""
    found = []
    for ulpdu in ulpdus:
        found.append(build_fpdu(ulpdu, crc=crc, position=position if markers else None))
        position += len(found[-1])
    return found


def messages(seed: int, count: int, longest: int = 1400) -> list[bytes]:
    """DDP segments as a conforming sender makes them."""
    chance, msn, reads = random.Random(seed), 1, 1
    made: list[bytes] = []
    while len(made) < count:
        stag, to = chance.getrandbits(32), chance.getrandbits(48)
        kind = chance.random()
        if kind < 0.4:
            made.append(send(chance.randrange(longest), msn))
            msn += 1
        elif kind < 0.9:
            for last in (0, 0, 1):
                payload = chance.randbytes(longest if not last else chance.randrange(longest))
                made.append(segment(RDMAPOpcode.RDMA_WRITE, payload, stag=stag, to=to, l=last))
                to += len(payload)
        else:
            made.append(
                segment(
                    RDMAPOpcode.RDMA_READ_REQUEST,
                    b"",
                    ReadRequestHeader(stag, to, 4096, 7, 8),
                    msn=reads,
                )
            )
            reads += 1
    return made


def whole_ones(events: list[Event]) -> list[tuple[int, bytes]]:
    return [(event.position, event.data) for event in events if isinstance(event, Fpdu)]


def statuses(events: list[Event]) -> list[CRCStatus]:
    return [event.crc for event in events if isinstance(event, Fpdu)]


def placed(data: list[bytes], position: int) -> list[tuple[int, bytes]]:
    found = []
    for one in data:
        found.append((position, one))
        position += len(one)
    return found


def size(event: Event) -> int:
    if isinstance(event, StartUp | Fpdu):
        return len(event.data)
    if isinstance(event, PartialFpdu):
        return event.size
    assert isinstance(event, Lost | Skipped | Forgotten)
    return event.length


def check_cover(events: list[Event], end: int = 0) -> None:
    """Every byte is in one event, but for what is lost inside a torn FPDU."""
    for event in events:
        assert not isinstance(event, NotIwarp)
        if isinstance(event, Lost):
            assert event.position <= end
            end = max(end, event.position + event.length)
        else:
            assert event.position == end
            end += size(event)
