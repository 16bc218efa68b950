"""What a simulator needs of an engine, and the clock that it gives to one."""

from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

from rdmawire.fabric.host import NotifyingPort
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import Pair
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.engine import Nic
from rdmawire.units import gbps, us
from rdmawire.verbs.async_event import CompletionEvent, Event
from rdmawire.verbs.engine import BURST, Clock, Engine
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.verbs.wr import RecvWR
from tests.ib.stage import go

MACS = (b"\x02\0\0\0\0\1", b"\x02\0\0\0\0\2")


class Echo:
    """An engine of its own: sends each frame back a microsecond later, and reports it."""

    def __init__(self, peer: bytes) -> None:
        self.clock: Clock | None = None
        self.peer = peer
        self.left = 0
        self.received: list[tuple[int, bytes]] = []
        self._due: int | None = None
        self._frames: list[bytes] = []
        self._events: list[Event] = []

    def post(self, data: bytes) -> int:
        """Send a frame; return the time at which it was posted."""
        assert self.clock is not None
        self._frames.append(self.peer + data)
        return self.clock()

    def receive(self, frame: bytes, now: int) -> None:
        self.received.append((now, frame[6:]))
        self._events.append(CompletionEvent(len(self.received)))
        if self.left:
            self.left -= 1
            self._due = now + us(1)

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        for frame in frames:
            self.receive(frame, now)

    def transmit(self, now: int, most: int = BURST) -> list[bytes]:
        frames, self._frames = self._frames[:most], self._frames[most:]
        return frames

    @property
    def sends_more(self) -> bool:
        return bool(self._frames)

    def next_timer(self) -> int | None:
        return self._due

    def handle_timer(self, now: int) -> None:
        if self._due is not None and self._due <= now:
            self._due = None
            self.post(b"echo")

    def next_event(self) -> Event | None:
        return self._events.pop(0) if self._events else None


def engines(link: Link) -> tuple[Simulator, list[Echo], list[Event]]:
    """Two engines on a link; the events of the second."""
    simulator, events = Simulator(), list[Event]()
    both: list[Echo] = [Echo(MACS[1]), Echo(MACS[0])]
    port = NotifyingPort(both[1])
    port.on_event = events.append  # type: ignore[assignment]
    simulator.attach(both[0], MACS[0], link)
    simulator.attach(port, MACS[1], link)
    return simulator, both, events


def test_any_engine_runs_in_a_simulator() -> None:
    simulator, (first, second), events = engines(Link(us(1)))
    engine: Engine = second
    assert not engine.sends_more
    first.left = second.left = 2
    assert first.post(b"hello") == 0
    simulator.run()
    assert second.received == [(us(1), b"hello"), (us(5), b"echo"), (us(9), b"echo")]
    assert first.received == [(us(3), b"echo"), (us(7), b"echo")]
    assert events == [CompletionEvent(1), CompletionEvent(2), CompletionEvent(3)]
    assert first.post(b"later") == us(9)


def test_an_engine_on_a_link_with_a_rate_has_the_clock_too() -> None:
    simulator, (first, second), _ = engines(Link(us(1), rate=gbps(1)))
    simulator.call_at(us(7), lambda: None)
    simulator.run()
    assert first.post(b"hello") == us(7)
    simulator.run()
    assert [data for _, data in second.received] == [b"hello"]


def test_adapters_are_engines() -> None:
    pair = Pair()
    engine: Engine = pair.client.nic
    managed: Any = ManagedPort(pair.server.nic, lambda _: None, Random(1))
    assert engine.clock is pair.simulator.clock
    assert managed.clock is pair.simulator.clock


def flushed(pair: Pair) -> int | None:
    """Post a receive in the error state, with its event moderated. Return the timer then."""
    go(pair.client, QPState.ERR)
    pair.client.nic.modify_cq(pair.client.cq, 0, us(5))
    pair.client.cq.req_notify()
    pair.client.nic.post_recv(pair.client.qp, RecvWR(()))
    assert pair.client.poll()[0].status is WCStatus.WR_FLUSH_ERR
    return pair.client.nic.next_timer()


def test_verbs_happen_at_the_time_of_the_simulator() -> None:
    pair = Pair()
    pair.drive(until=us(100))
    assert flushed(pair) == us(105)


def test_without_a_clock_verbs_happen_at_the_time_of_the_last_call() -> None:
    pair = Pair()
    pair.drive(until=us(100))
    pair.client.nic.clock = None
    pair.client.nic.handle_timer(us(40))
    assert flushed(pair) == us(45)


def test_time_never_goes_back() -> None:
    pair = Pair()
    pair.client.nic.handle_timer(us(40))
    pair.client.nic.clock = lambda: us(10)
    assert flushed(pair) == us(45)


def test_the_copy_of_an_adapter_has_the_time_of_the_copy() -> None:
    pair = Pair()
    pair.drive(until=us(100))
    copied: Nic = deepcopy(pair.client.nic)
    pair.drive(until=us(200))
    assert copied.clock is not None
    assert (copied.clock(), pair.simulator.clock()) == (us(100), us(200))
