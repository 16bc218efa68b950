"""The event loop of live devices: descriptors, work that is polled, and sleep between.

A driver does its work in :meth:`Driver.step`. While there is work the loop calls it again and
again, and checks descriptors in between. Without work it yields the processor for a while, which
costs the least when the next work comes soon, and then sleeps in epoll until a descriptor is
ready, or the driver's next timer is due.
"""

import os
from collections.abc import Callable
from select import EPOLLIN, epoll, select
from typing import Final, Protocol

from rdmawire.live.clock import now

Handler = Callable[[int], None]
"""Called with the events of a ready descriptor (``select.EPOLLIN`` and others)."""

YIELDS: Final = 200
"""Empty steps before the loop sleeps. Each yields the processor."""
_STEPS: Final = 16
"""Steps with work between two checks of the descriptors."""
_EMPTY_STEPS: Final = 8
"""Steps without work between two checks of the descriptors."""
_MAX_SLEEP: Final = 0.5
"""Seconds."""
FD_SETSIZE: Final = 1024
"""Descriptors from here on cannot be waited for by select(2)."""
_SECOND: Final = 1_000_000_000


class Driver(Protocol):
    """What a loop drives. Times are in ns."""

    def step(self) -> bool:
        """Do what can be done now, without waiting. Return whether there was anything."""

    def next_timer(self) -> int | None:
        """Return when :meth:`step` is due without new work, or ``None``."""

    def may_sleep(self) -> bool:
        """Prepare for sleep: have sources of work wake the loop. ``False`` if there is work now."""

    def awake(self) -> None:
        """Note the end of the sleep."""


class Loop:
    """Runs a driver, and calls the handlers of descriptors that are ready."""

    def __init__(self, yields: int = YIELDS) -> None:
        self._epoll = epoll()
        self._alarm = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._alarm, EPOLLIN)
        self._handlers: dict[int, Handler] = {}
        self._yields = yields
        self.stopped = False
        """Whether :meth:`stop` was called."""

    def register(self, fd: int, handler: Handler, events: int = EPOLLIN) -> None:
        """Call ``handler`` while ``fd`` is ready for ``events``."""
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def unregister(self, fd: int) -> None:
        """Stop calling the handler of a descriptor, before it is closed."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def stop(self) -> None:
        """Let :meth:`run` return after the present step. Any thread may call this."""
        self.stopped = True
        os.eventfd_write(self._alarm, 1)

    def poll(self, timeout: float = 0) -> bool:
        """Call the handlers of ready descriptors; wait for one at most ``timeout`` seconds.

        Return whether there was any.
        """
        if timeout and self._epoll.fileno() < FD_SETSIZE:
            select([self._epoll], [], [], timeout)  # to the microsecond: epoll counts ms
            timeout = 0
        called = False
        for fd, events in self._epoll.poll(timeout):
            handler = self._handlers.get(fd)  # an earlier handler may have closed it
            if handler is not None:
                handler(events)
                called = True
        return called

    def run(self, driver: Driver) -> None:
        """Drive until :meth:`stop`."""
        busy = idle = 0
        while not self.stopped:
            if driver.step():
                idle, busy = 0, busy + 1
                if not busy % _STEPS:
                    self.poll()
                continue
            idle += 1
            if idle <= self._yields:
                if not idle % _EMPTY_STEPS and self.poll():
                    idle = 0
                os.sched_yield()
            elif self._sleep(driver):
                idle = 0

    def _sleep(self, driver: Driver) -> bool:
        """Sleep until something happens. Return whether a descriptor was ready, or work came."""
        try:
            return not driver.may_sleep() or self.poll(_seconds_until(driver.next_timer()))
        finally:
            driver.awake()

    def close(self) -> None:
        """Close the loop's own descriptors."""
        self._epoll.close()
        os.close(self._alarm)


def _seconds_until(time: int | None) -> float:
    if time is None:
        return _MAX_SLEEP
    return min(max(time - now(), 0) / _SECOND, _MAX_SLEEP)
