"""A receive that was posted before a message is there for it, in whatever order rings are read."""

from collections.abc import Callable
from typing import Final

import pytest

from rdmawire.verbs_service import server as server_module
from rdmawire.verbs_service.context import Context
from rdmawire.verbs_service.posting import take_work
from rdmawire.verbs_service.protocol import WORK_RING_BYTES
from tests.verbs_service.client import RC, RC_MASKS, SUCCESS, UC, UD, wait_until
from tests.verbs_service.running import Service

UC_MASKS: Final = (0x39, 0x101181, 0x10001)
QKEY: Final = 5
TEXT: Final = b"in order"
GRH: Final = 40
MAX_SGES: Final = 4


class Ends:
    """Connected queue pairs. The ring of the receiver has its turn before that of the sender."""

    def __init__(self, service: Service, kind: int, *, shared: bool = False) -> None:
        self.receiver, self.sender = service.connect(1), service.connect(0)
        self.cq = self.receiver.create_cq()
        self.srq = 0
        if shared:
            self.srq, *_ = self.receiver.call("create_srq", self.receiver.pd, 0, 16, 1, 0, 0, 0)
        self.to = self.receiver.create_qp(self.cq, kind=kind, srq=self.srq)
        self.by = self.sender.create_qp(self.sender.create_cq(), kind=kind)
        self.source, self.sink = self.sender.buffer(64), self.receiver.buffer(64)
        self.source.memory[: len(TEXT)] = TEXT
        self.address: dict[str, int] = {}
        if kind == UD:
            ah = self.sender.create_ah(self.receiver.gid())
            self.address = {"ah": ah, "remote_qpn": self.to.number, "remote_qkey": QKEY}
            self.receiver.bring_up_ud(self.to, QKEY)
            self.sender.bring_up_ud(self.by, QKEY)
        else:
            masks = UC_MASKS if kind == UC else RC_MASKS
            self.receiver.bring_up(self.to, self.by, self.sender.gid(), masks)
            self.sender.bring_up(self.by, self.to, self.receiver.gid(), masks)

    def receive(self, *, wr_id: int = 0) -> None:
        if self.srq:
            self.receiver.receive_shared(self.srq, self.sink.sge(), wr_id=wr_id)
        else:
            self.receiver.receive(self.to, self.sink.sge(), wr_id=wr_id)

    def send(self) -> None:
        self.sender.send(self.by, self.source.sge(length=len(TEXT)), **self.address)


@pytest.fixture
def in_turn_of_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Ends, Callable[[], None]], None]:
    """Do something, once, when the service reads the ring of a sender, before it does."""

    def arrange(ends: Ends, action: Callable[[], None]) -> None:
        pending = [action]

        def take(context: Context) -> bool:
            if context.device.name == "rw0" and pending:
                pending.pop()()
            return take_work(context)

        monkeypatch.setattr(server_module, "take_work", take)
        ends.sender.receive(ends.by, ends.source.sge())  # gives the ring a turn

    return arrange


Arrange = Callable[[Ends, Callable[[], None]], None]


@pytest.mark.parametrize(
    ("kind", "shared"), [(RC, False), (UC, False), (UD, False), (RC, True), (UD, True)]
)
def test_a_message_finds_a_receive_posted_before_it(
    kind: int, shared: bool, service: Service, in_turn_of_sender: Arrange
) -> None:
    ends = Ends(service, kind, shared=shared)
    counters = service.server.devices[1].nic.counters
    found_none = counters.out_of_buffer

    def post() -> None:
        ends.receive(wr_id=7)
        ends.send()

    in_turn_of_sender(ends, post)
    (done,) = ends.cq.wait()
    assert (done.wr_id, done.status) == (7, SUCCESS)
    start = GRH if kind == UD else 0
    assert ends.sink.memory[start : start + len(TEXT)] == TEXT
    assert service.server.devices[1].nic.counters.out_of_buffer == found_none


def test_receives_on_both_sides_of_the_end_of_a_ring_are_found(
    service: Service, in_turn_of_sender: Arrange
) -> None:
    ends = Ends(service, UC)
    ends.receiver.skip_to(WORK_RING_BYTES - 8)
    size = ends.receiver.head
    wait_until(lambda: ends.receiver.words[64 // 8] == size)  # the service is there, too

    def post() -> None:
        for number in range(2):
            ends.receive(wr_id=number)
            ends.send()

    in_turn_of_sender(ends, post)
    assert [done.wr_id for done in ends.cq.wait(2)] == [0, 1]
    ends.receive(wr_id=2)
    ends.send()
    assert ends.cq.wait()[0].wr_id == 2


def test_receives_keep_their_order(service: Service, in_turn_of_sender: Arrange) -> None:
    ends = Ends(service, UC)
    ends.receive(wr_id=0)

    def post() -> None:
        for number in range(1, 4):
            ends.receive(wr_id=number)
        for _ in range(4):
            ends.send()

    in_turn_of_sender(ends, post)
    assert [done.wr_id for done in ends.cq.wait(4)] == [0, 1, 2, 3]


def test_an_invalid_receive_is_found_and_ends_its_queue_pair_alone(
    service: Service, in_turn_of_sender: Arrange
) -> None:
    ends, others = Ends(service, RC), Ends(service, RC)

    def post() -> None:
        sges = [ends.sink.sge()] * (MAX_SGES + 1)
        ends.receiver.receive(ends.to, *sges, wr_id=9)
        ends.send()

    in_turn_of_sender(ends, post)
    (done,) = ends.cq.wait()
    assert done.wr_id == 9
    assert done.status != SUCCESS
    others.receive(wr_id=1)
    others.send()
    assert others.cq.wait()[0].status == SUCCESS


def test_a_ring_whose_work_is_taken_gives_each_receive_once(service: Service) -> None:
    client = service.connect(0)
    cq = client.create_cq()
    one, other = client.create_qp(cq), client.create_qp(cq)
    gid = client.gid()
    client.bring_up(one, other, gid, RC_MASKS)
    client.bring_up(other, one, gid, RC_MASKS)
    source, sink = client.buffer(64), client.buffer(64)
    client.receive(other, sink.sge(), wr_id=1)
    for number in (2, 3):
        client.send(one, source.sge(length=8), wr_id=number)
    client.receive(other, sink.sge(), wr_id=4)
    done = [(each.wr_id, each.status) for each in cq.wait(4)]
    assert sorted(done) == [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS), (4, SUCCESS)]
    assert not cq.poll()
    client.close()
