"""Frames taken in at once leave what they leave one by one, whatever was done to them."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.page import Path
from rdmawire.verbs.async_event import Event
from rdmawire.verbs.enums import QPState, QPType, WorkCompletion
from rdmawire.wire import roce
from rdmawire.wire.ib import RETH
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.ib.stage import Stage, events, key_of

BYTES = bytes(range(251)) * 40


class Seen(NamedTuple):
    """Everything that can be seen of the server."""

    memory: bytes
    receives: bytes
    completions: list[WorkCompletion]
    answers: list[bytes]
    drops: dict[Drop, int]
    events: list[Event]
    state: QPState
    epsn: int
    msn: int
    dma: tuple[int, int]


class Scene:
    """A client's frames of a few messages, and a server that has not received them."""

    def __init__(self, kind: QPType) -> None:
        attributes = ATTRIBUTES._replace(path_mtu=MTU.MTU_256)
        self.stage = Stage(Pair(kind=kind, attributes=attributes))
        client, server = self.stage.client, self.stage.server
        self.posted = [server.receive(2000) for _ in range(3)]
        for message in range(3):
            client.write(BYTES[message : message + 1500], to=server.region, offset=1000 * message)
            client.send(BYTES[message : message + 1300])
        if kind is QPType.RC:
            client.read(700, of=server.region)
            client.write(BYTES[:1100], to=server.region, offset=100)
        self.frames: list[bytes] = []
        while burst := client.nic.transmit(0):
            self.frames += burst

    def seen(self) -> Seen:
        """What there is after the server said all it has to say."""
        server = self.stage.server
        answers: list[bytes] = []
        while burst := server.nic.transmit(0):
            answers += burst
        inbound = server.qp.inbound
        dma = server.nic.memory.counter[Path.HOST]
        return Seen(
            server.region.read(),
            b"".join(receive.buffer.read() for receive in self.posted),
            server.poll(),
            answers,
            dict(server.nic.drops),
            events(server),
            server.qp.state,
            inbound.epsn,
            inbound.msn,
            (dma.bytes, dma.transactions),
        )


def one_by_one(scene: Scene, frames: list[bytes]) -> None:
    for frame in frames:
        scene.stage.server.nic.receive(frame, 0)


def at_once(scene: Scene, frames: list[bytes]) -> None:
    scene.stage.server.nic.receive_all(frames, 0)


def both_ways(kind: QPType, change: Callable[[list[bytes]], list[bytes]]) -> tuple[Seen, Seen]:
    """What is seen of a server that got changed frames singly, and of one that got them at once."""
    seen = []
    for take in (one_by_one, at_once):
        scene = Scene(kind)
        take(scene, change(scene.frames))
        seen.append(scene.seen())
    return seen[0], seen[1]


BOTH = pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])


@BOTH
def test_frames_as_they_were_sent(kind: QPType) -> None:
    singly, together = both_ways(kind, lambda frames: frames)
    assert singly == together
    assert len(singly.completions) == 3


@BOTH
def test_frames_of_which_any_one_is_lost(kind: QPType) -> None:
    for lost in range(len(Scene(kind).frames)):
        singly, together = both_ways(kind, _without(lost))
        assert singly == together


def _without(lost: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda frames: frames[:lost] + frames[lost + 1 :]


def _flip(frame: bytes, at: int, bit: int) -> bytes:
    data = bytearray(frame)
    data[at % len(data)] ^= 1 << bit
    return bytes(data)


def _drop(frames: list[bytes], at: int, _: Random) -> None:
    del frames[at]


def _repeat(frames: list[bytes], at: int, _: Random) -> None:
    frames.insert(at, frames[at])


def _move(frames: list[bytes], at: int, random: Random) -> None:
    frames.insert(random.randrange(len(frames)), frames.pop(at))


def _corrupt(frames: list[bytes], at: int, random: Random) -> None:
    frames[at] = _flip(frames[at], random.randrange(400), random.randrange(8))


def _cut(frames: list[bytes], at: int, random: Random) -> None:
    frames[at] = frames[at][: random.randrange(len(frames[at]))]


def _lengthen(frames: list[bytes], at: int, _: Random) -> None:
    frames[at] += bytes(6)


CHANGES = (_drop, _repeat, _move, _corrupt, _cut, _lengthen)


@BOTH
@given(seed=st.integers(0, 2**32), changes=st.lists(st.sampled_from(CHANGES), max_size=6))
def test_frames_that_were_lost_repeated_moved_and_broken(
    kind: QPType, seed: int, changes: list[Callable[[list[bytes], int, Random], None]]
) -> None:
    def change(frames: list[bytes]) -> list[bytes]:
        random = Random(seed)
        frames = list(frames)
        for alter in changes:
            alter(frames, random.randrange(len(frames)), random)
        return frames

    singly, together = both_ways(kind, change)
    assert singly == together


@pytest.mark.parametrize("psn", [102, 103, 104])
def test_a_run_ends_where_the_message_would_be_too_long(psn: int) -> None:
    seen = []
    for take in (one_by_one, at_once):
        scene = Scene(QPType.RC)
        stage = scene.stage
        there = key_of(stage.server.region, (psn - 100) * 256)
        frames = [
            stage.forge(Packet.make(Opcode.RC_RDMA_WRITE_FIRST, there, payload=bytes(256), psn=100))
        ]
        frames += [
            stage.forge(Packet.make(Opcode.RC_RDMA_WRITE_MIDDLE, payload=bytes(256), psn=number))
            for number in range(101, 110)
        ]
        take(scene, frames)
        seen.append(scene.seen())
    assert seen[0] == seen[1]
    assert seen[0].state is QPState.ERR


def test_memory_that_goes_away_within_a_run() -> None:
    seen = []
    for take in (one_by_one, at_once):
        scene = Scene(QPType.RC)
        region = scene.stage.server.region.region
        take(scene, scene.frames[:2])
        region.invalidate()
        take(scene, scene.frames[2:])
        seen.append(scene.seen())
    assert seen[0] == seen[1]
    assert seen[0].state is QPState.ERR


def test_runs_behind_a_read_are_taken_at_once_and_do_not_show_in_it() -> None:
    seen = []
    for take in (one_by_one, at_once):
        scene = Scene(QPType.RC)
        stage = scene.stage
        stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, 256), psn=100)
        there = RETH(stage.server.region.address, stage.server.region.rkey, 1024)
        opcodes = [Opcode.RC_RDMA_WRITE_FIRST] + [Opcode.RC_RDMA_WRITE_MIDDLE] * 2
        frames = [
            stage.forge(
                Packet.make(
                    opcode, *((there,) if not index else ()), payload=b"w" * 256, psn=101 + index
                )
            )
            for index, opcode in enumerate(opcodes)
        ]
        take(scene, frames)
        assert stage.server.region.read(768) == b"w" * 768
        seen.append(scene.seen())
    assert seen[0] == seen[1]
    assert roce.parse(seen[0].answers[0]).packet.payload == bytes(256)
