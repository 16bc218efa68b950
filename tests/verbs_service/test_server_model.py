"""Two clients of a service against a plain model: bytearrays, and lists of posted work."""

from collections import deque
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.network import DirectNetwork
from tests.verbs_service.client import CAS, FAA, READ, SUCCESS, WRITE, Region
from tests.verbs_service.running import Service, connected, running

SIZE = 3 * 4096 + 100
DEPTH = 16
SIDES = st.integers(0, 1)
LENGTHS = st.one_of(st.integers(0, 16), st.integers(4090, 4100), st.integers(0, 9000))
OFFSETS = st.one_of(st.integers(0, 8), st.integers(0, 3200))
DATA = st.integers(0, 255)


class TwoClients(RuleBasedStateMachine):
    """Each operation is done by the service and by the model; then memory must be equal.

    Work completes in order, each once, and so do receives.
    """

    service: Service

    def __init__(self) -> None:
        super().__init__()
        self.ends = connected(self.service, depth=DEPTH)
        self.regions: list[Region] = [end.client.buffer(SIZE) for end in self.ends]
        self.model = [bytearray(SIZE), bytearray(SIZE)]
        self.receives: list[deque[tuple[int, int, int]]] = [deque(), deque()]
        self.number = 0

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _place(self, side: int, offset: int) -> dict[str, int]:
        region = self.regions[side]
        return {"remote_address": region.memory.address + offset, "rkey": region.rkey}

    def _complete(self, side: int, wr_id: int) -> None:
        (done,) = self.ends[side].cq.wait()
        assert (done.wr_id, done.status) == (wr_id, SUCCESS)

    def _check(self) -> None:
        for region, model in zip(self.regions, self.model, strict=True):
            assert region.memory[:] == bytes(model)

    @rule(side=SIDES, offset=OFFSETS, length=LENGTHS, value=DATA)
    def fill(self, side: int, offset: int, length: int, value: int) -> None:
        data = bytes((value + i) % 256 for i in range(length))
        self.regions[side].memory[offset : offset + length] = data
        self.model[side][offset : offset + length] = data

    @rule(
        side=SIDES, near=OFFSETS, far=OFFSETS, length=LENGTHS, opcode=st.sampled_from([WRITE, READ])
    )
    def write_or_read(self, side: int, near: int, far: int, length: int, opcode: int) -> None:
        one, number = self.ends[side], self._next()
        sge = self.regions[side].sge(near, length)
        place = self._place(1 - side, far)
        one.client.send(one.qp, sge, opcode=opcode, wr_id=number, **place)
        self._complete(side, number)
        mine, theirs = self.model[side], self.model[1 - side]
        if opcode == WRITE:
            theirs[far : far + length] = mine[near : near + length]
        else:
            mine[near : near + length] = theirs[far : far + length]
        self._check()

    @rule(side=SIDES, count=st.integers(1, DEPTH), far=OFFSETS, value=DATA)
    def write_many(self, side: int, count: int, far: int, value: int) -> None:
        one = self.ends[side]
        numbers = [self._next() for _ in range(count)]
        for index, number in enumerate(numbers):
            data = bytes(((value + index) % 256,)) * 5
            place = self._place(1 - side, far + index * 5)
            one.client.send_inline(one.qp, data, opcode=WRITE, wr_id=number, **place)
            self.model[1 - side][far + index * 5 : far + index * 5 + 5] = data
        assert [done.wr_id for done in one.cq.wait(count)] == numbers
        self._check()

    @rule(side=SIDES, offset=OFFSETS, length=LENGTHS)
    def post_receive(self, side: int, offset: int, length: int) -> None:
        if len(self.receives[side]) == DEPTH:
            return
        end, number = self.ends[side], self._next()
        end.client.receive(end.qp, self.regions[side].sge(offset, length), wr_id=number)
        self.receives[side].append((number, offset, length))

    @precondition(lambda self: any(self.receives))
    @rule(side=SIDES, near=OFFSETS, share=st.floats(0, 1))
    def send(self, side: int, near: int, share: float) -> None:
        if not self.receives[1 - side]:
            side = 1 - side
        number, offset, room = self.receives[1 - side].popleft()
        one, other, mine = self.ends[side], self.ends[1 - side], self._next()
        length = int(room * share)
        one.client.send(one.qp, self.regions[side].sge(near, length), wr_id=mine)
        self._complete(side, mine)
        (done,) = other.cq.wait()
        assert (done.wr_id, done.status, done.byte_len) == (number, SUCCESS, length)
        self.model[1 - side][offset : offset + length] = self.model[side][near : near + length]
        self._check()

    @rule(
        side=SIDES, word=st.integers(0, 400), add=st.integers(0, (1 << 64) - 1), swaps=st.booleans()
    )
    def atomic(self, side: int, word: int, add: int, swaps: bool) -> None:
        one, number, at = self.ends[side], self._next(), word * 8
        theirs = self.model[1 - side]
        old = int.from_bytes(theirs[at : at + 8], "little")
        new = add if swaps else (old + add) % (1 << 64)
        numbers = {"compare_add": old, "swap": add} if swaps else {"compare_add": add}
        place = self._place(1 - side, at)
        opcode = CAS if swaps else FAA
        sge = self.regions[side].sge(SIZE - 8, 8)
        one.client.send(one.qp, sge, opcode=opcode, wr_id=number, **numbers, **place)
        self._complete(side, number)
        theirs[at : at + 8] = new.to_bytes(8, "little")
        self.model[side][SIZE - 8 :] = old.to_bytes(8, "little")
        self._check()

    def teardown(self) -> None:
        for end in self.ends:
            end.client.close()


@pytest.mark.parametrize("captured", [False, True])
def test_service_does_what_the_model_does(captured: bool) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        network = DirectNetwork(Capture(folder / "all.pcap") if captured else None)
        TwoClients.service = stack.enter_context(running(folder, network))
        effort = settings(max_examples=30, stateful_step_count=30)
        run_state_machine_as_test(TwoClients, settings=effort)
