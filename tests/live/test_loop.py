"""The event loop: descriptors, steps and sleep."""

import os
import socket
from contextlib import closing
from threading import Thread

import pytest

from rdmawire.live import Datagrams, Loop, entropy, epoch, now


class Countdown:
    """A driver with work for ``steps`` steps; then it sleeps until its timer, and stops."""

    def __init__(self, loop: Loop, steps: int, sleeps: int = 3) -> None:
        self.loop = loop
        self.steps = steps
        self.sleeps = sleeps
        self.seen: list[str] = []
        self.refuses = False

    def step(self) -> bool:
        self.steps -= 1
        return self.steps >= 0

    def next_timer(self) -> int | None:
        return now() + 1000

    def may_sleep(self) -> bool:
        self.seen.append("sleep")
        self.sleeps -= 1
        if not self.sleeps:
            self.loop.stop()
        return not self.refuses

    def awake(self) -> None:
        self.seen.append("awake")


def test_driver_steps_until_nothing_is_left_and_then_sleeps() -> None:
    with closing(Loop(yields=2)) as loop:
        driver = Countdown(loop, steps=100)
        loop.run(driver)
        assert driver.steps < 0
        assert driver.seen == ["sleep", "awake"] * 3


def test_driver_that_may_not_sleep_steps_again() -> None:
    with closing(Loop(yields=1)) as loop:
        driver = Countdown(loop, steps=0, sleeps=2)
        driver.refuses = True
        loop.run(driver)
        assert driver.seen == ["sleep", "awake"] * 2


def test_handlers_are_called_while_there_is_work_too() -> None:
    one, other = socket.socketpair()
    heard: list[bytes] = []
    with closing(Loop()) as loop, one, other:
        driver = Countdown(loop, steps=1 << 60)

        def hear(_: int) -> None:
            heard.append(one.recv(10))
            loop.stop()

        loop.register(one.fileno(), hear)
        other.send(b"now")
        loop.run(driver)
        assert heard == [b"now"]
        loop.unregister(one.fileno())
        loop.unregister(one.fileno())
        other.send(b"later")
        assert not loop.poll()


def test_handler_that_unregisters_another_is_the_last_one_called() -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    called: list[int] = []
    with closing(Loop()) as loop:

        def hear(events: int) -> None:
            called.append(events)
            for one, _ in pairs:
                loop.unregister(one.fileno())

        for one, other in pairs:
            loop.register(one.fileno(), hear)
            other.send(b"x")
        assert loop.poll()
        assert len(called) == 1
    for one, other in pairs:
        one.close()
        other.close()


def test_another_thread_stops_a_loop_that_sleeps() -> None:
    with closing(Loop(yields=0)) as loop:
        driver = Countdown(loop, steps=0, sleeps=1 << 60)
        thread = Thread(target=loop.run, args=(driver,))
        thread.start()
        loop.stop()
        thread.join()


def test_clock_and_identifiers() -> None:
    before = now()
    assert before <= now()
    assert epoch() > 0
    assert 0 <= entropy().getrandbits(24) < 1 << 24


def test_datagrams_arrive_in_batches() -> None:
    with closing(Datagrams(0, "127.0.0.1")) as one, closing(Datagrams(0, "127.0.0.1")) as other:
        assert other.receive_all(5) == []
        for number in range(4):
            assert one.send(bytes((number,)), other.address)
        found = other.receive_all(3) + other.receive_all(3)
        assert found == [(bytes((number,)), one.address) for number in range(4)]


def test_datagram_to_a_port_without_a_socket_is_lost() -> None:
    with closing(Datagrams(0, "127.0.0.1")) as gone:
        address = gone.address
    with closing(Datagrams(0, "127.0.0.1")) as one:
        for _ in range(3):
            assert one.send(b"x", address)
            assert one.receive_all(1) == []


def test_port_in_use_is_an_error_without_a_descriptor_left() -> None:
    with closing(Datagrams(0, "127.0.0.1")) as one:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match="in use"):
            Datagrams(one.address[1], "127.0.0.1")
        assert len(os.listdir("/proc/self/fd")) == before
