"""Sweeps over the edges of memory: every length and every place where a border could matter.

Lengths from 0 to 32 and one MTU and several, more or less one; addresses 0 to 7 bytes after a page
border, and on both sides of 4 KiB and 64 KiB pages. The bytes round each access are compared too.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import pytest

from rdmawire.fabric.host import Buffer
from rdmawire.fabric.pair import ATTRIBUTES, End, Pair
from rdmawire.memory.page import PAGE_4K, PAGE_64K
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire.management import MTU

BYTES: Final = 1024
LENGTHS: Final = (
    *range(33),
    *(number * BYTES + more for number in (1, 2, 5) for more in (-1, 0, 1)),
)
PLACES: Final = (
    *range(8),
    *(page + step for page in (PAGE_4K, 3 * PAGE_4K, PAGE_64K) for step in range(-9, 9)),
)
ROOM: Final = 2 * PAGE_64K
NOISE: Final = bytes((7 * number + number // 251) % 256 for number in range(ROOM))
Access = Callable[["Stage", int, int, int], None]


class Stage:
    """Two hosts, with memory full of noise at both ends, and what it should hold."""

    def __init__(self, kind: QPType) -> None:
        self.pair = Pair(kind=kind, attributes=ATTRIBUTES._replace(path_mtu=MTU.MTU_1024))
        self.near = self._noisy(self.pair.client)
        self.far = self._noisy(self.pair.server)
        self.models = {buffer: bytearray(NOISE) for buffer in (self.near, self.far)}

    def _noisy(self, end: End) -> Buffer:
        buffer = end.buffer(ROOM)
        buffer.write(NOISE)
        return buffer

    def move(self, source: Buffer, start: int, sink: Buffer, place: int, length: int) -> None:
        """What an access should do."""
        data = self.models[source][start : start + length]
        self.models[sink][place : place + length] = data

    def go(self, wr: SendWR) -> None:
        """Do it, and compare everything."""
        self.pair.client.post(wr, self.near)
        self.pair.drive()
        found = [done.status for end in (self.pair.client, self.pair.server) for done in end.poll()]
        assert set(found) == {WCStatus.SUCCESS}
        for buffer, model in self.models.items():
            assert buffer.read() == model


def _pieces(buffer: Buffer, start: int, length: int) -> tuple[Sge, ...]:
    """One piece, or for odd lengths four, the shortest first."""
    if length % 2 == 0:
        return (buffer.sge(length, start),)
    cuts = (0, 1, 1 + (length - 1) // 3, 1 + (length - 1) // 2, length)
    return tuple(buffer.sge(b - a, start + a) for a, b in pairwise(cuts))


def _write(stage: Stage, start: int, place: int, length: int) -> None:
    address, rkey = stage.far.address + place, stage.far.rkey
    sges = _pieces(stage.near, start, length)
    stage.move(stage.near, start, stage.far, place, length)
    stage.go(SendWR(SendOpcode.RDMA_WRITE, sges, remote_address=address, rkey=rkey))


def _read(stage: Stage, start: int, place: int, length: int) -> None:
    address, rkey = stage.far.address + place, stage.far.rkey
    sges = _pieces(stage.near, start, length)
    stage.move(stage.far, place, stage.near, start, length)
    stage.go(SendWR(SendOpcode.RDMA_READ, sges, remote_address=address, rkey=rkey))


def _send(stage: Stage, start: int, place: int, length: int) -> None:
    server = stage.pair.server
    recv = RecvWR(_pieces(stage.far, place, length), 0)
    server.nic.post_recv(server.qp, [recv])
    stage.move(stage.near, start, stage.far, place, length)
    stage.go(SendWR(SendOpcode.SEND, _pieces(stage.near, start, length)))


SWEPT: Final[dict[str, tuple[QPType, Access]]] = {
    "RC WRITE": (QPType.RC, _write),
    "RC READ": (QPType.RC, _read),
    "RC SEND": (QPType.RC, _send),
    "UC WRITE": (QPType.UC, _write),
    "UC SEND": (QPType.UC, _send),
}


def _ends(length: int) -> Iterator[tuple[int, int]]:
    """Where an access starts, near and far: each place with its like and with another."""
    for number, place in enumerate(PLACES):
        yield place, PLACES[(number * 5 + length) % len(PLACES)]


@pytest.mark.parametrize("what", SWEPT)
@pytest.mark.parametrize("lengths", [LENGTHS[:33], LENGTHS[33:]], ids=["short", "packets"])
def test_every_border_is_crossed_as_if_it_were_none(what: str, lengths: tuple[int, ...]) -> None:
    kind, access = SWEPT[what]
    stage = Stage(kind)
    for length in lengths:
        for start, place in _ends(length):
            access(stage, start, place, length)


@pytest.mark.parametrize("what", SWEPT)
def test_accesses_that_end_at_a_border(what: str) -> None:
    kind, access = SWEPT[what]
    stage = Stage(kind)
    for length in LENGTHS:
        for page in (PAGE_4K * 2, PAGE_64K, ROOM):
            access(stage, page - length, page - length, length)


def test_the_last_bytes_of_a_region_and_none_behind() -> None:
    for length in (1, 8, BYTES, BYTES + 1):
        for step in (0, 1):
            stage = Stage(QPType.RC)
            place = ROOM - length + step
            stage.pair.client.write(bytes(length), to=stage.far, offset=place)
            stage.pair.drive()
            (done,) = stage.pair.client.poll()
            wanted = WCStatus.REM_ACCESS_ERR if step else WCStatus.SUCCESS
            assert done.status is wanted
            model = NOISE if step else NOISE[:place] + bytes(length)
            assert stage.far.read() == model


@pytest.mark.parametrize("place", [place for place in PLACES if place >= 8])
def test_atomics_at_every_place(place: int) -> None:
    stage = Stage(QPType.RC)
    before = NOISE[place : place + 8]
    sink = stage.pair.client.fetch_add(1, of=stage.far, offset=place)
    stage.pair.drive()
    (done,) = stage.pair.client.poll()
    if place % 8:
        assert done.status is WCStatus.REM_INV_REQ_ERR
        assert stage.far.read() == NOISE
        return
    after = (int.from_bytes(before, "little") + 1).to_bytes(9, "little")[:8]
    assert sink.buffer.read() == before
    assert stage.far.read() == NOISE[:place] + after + NOISE[place + 8 :]
