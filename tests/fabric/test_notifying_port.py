"""Ports whose owners hear at once of what happens."""

from rdmawire.fabric.host import Host, NotifyingPort
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, CAP, connect
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.cm.event import CMEvent
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.units import us
from rdmawire.verbs.async_event import CompletionEvent, Event
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.wr import SendOpcode, SendWR


class Asker:
    """Posts the next piece of work when the one before is done, a number of times."""

    def __init__(self, host: Host, work: SendWR, times: int) -> None:
        self.host, self.work, self.times = host, work, times
        self.port = NotifyingPort(host.nic)
        self.port.on_event = self.hear
        self.cq = host.nic.create_cq(64)
        self.qp: QueuePair = host.nic.create_qp(QPType.RC, QPInit(host.pd, self.cq, self.cq, CAP))
        self.simulator = Simulator()
        self.done: list[int] = []

    def hear(self, event: Event | CMEvent) -> None:
        assert event == CompletionEvent(self.cq.number)
        for _ in self.cq.poll(64):
            self.done.append(self.simulator.now)
            if len(self.done) < self.times:
                self.ask()

    def ask(self) -> None:
        self.cq.request_notify()
        self.host.nic.post_send(self.qp, (self.work,), self.simulator.now)


def test_one_answer_leads_to_the_next_question() -> None:
    server = Host(2)
    asker = Asker(Host(1), SendWR(SendOpcode.RDMA_WRITE), times=3)
    cq = server.nic.create_cq(64)
    peer = server.nic.create_qp(asker.qp.type, QPInit(server.pd, cq, cq, CAP))
    connect(asker.host, asker.qp, server, peer, ATTRIBUTES)
    link = Link(us(1))
    asker.simulator.attach(asker.port, asker.host.mac, link)
    asker.simulator.attach(server.nic, server.mac, link)
    asker.ask()
    asker.simulator.run()
    assert asker.done == [us(2), us(4), us(6)]


def test_work_without_packets_leads_to_more_within_the_same_turn() -> None:
    asker = Asker(Host(1), SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=0), times=3)
    asker.host.bring_up(asker.qp, ATTRIBUTES._replace(ah=asker.host.path_to(Host(2))))
    asker.ask()
    assert asker.port.sends_more
    assert asker.port.transmit(5) == []
    assert len(asker.done) == 3
    assert not asker.port.sends_more


def test_nobody_need_listen() -> None:
    asker = Asker(Host(1), SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=0), times=1)
    asker.host.bring_up(asker.qp, ATTRIBUTES._replace(ah=asker.host.path_to(Host(2))))
    port = NotifyingPort(asker.host.nic)
    asker.ask()
    assert (port.transmit(0), port.next_timer(), port.deliver_events()) == ([], None, False)


def test_a_frame_that_was_taken_in_is_shown_behind_what_it_led_to() -> None:
    server = Host(2)
    asker = Asker(Host(1), SendWR(SendOpcode.RDMA_WRITE), times=2)
    cq = server.nic.create_cq(64)
    peer = server.nic.create_qp(asker.qp.type, QPInit(server.pd, cq, cq, CAP))
    connect(asker.host, asker.qp, server, peer, ATTRIBUTES)
    link, seen = Link(us(1)), list[tuple[int, int]]()
    asker.simulator.attach(asker.port, asker.host.mac, link)
    asker.simulator.attach(server.nic, server.mac, link)
    asker.port.on_taken.append(lambda _, now: seen.append((now, len(asker.done))))
    asker.ask()
    asker.simulator.run()
    assert seen == [(us(2), 1), (us(4), 2)]
