"""Slots of work queues: how much may be posted before something completes. IBA 10.8.6.

A send or receive holds its slot until its owner knows that it is done: until the completion of it,
or of a later one, is polled. Work whose success is not signalled is known to be done by the next
completion alone, so a queue in which nothing is signalled fills up for good, as with mlx5. A
profile may free a slot as soon as its work completes (:attr:`Profile.frees_slots_at_poll`).

Polling costs nothing for this: a completion queue counts what was polled, and what that freed is
worked out when a queue seems to be full.
"""

from collections import deque

from rdmawire.nic.cq import CompletionQueue
from rdmawire.nic.profile import Profile


class Slots:
    """The slots of one work queue that are in use.

    ``held`` counts them, as far as was worked out: :meth:`reclaim` brings it up to date.
    ``unreported`` counts work that completed without a completion since the last one.
    ``_reports`` has, for each slot, the position of the completion that frees it.
    """

    __slots__ = ("_at_poll", "_reports", "held", "unreported")

    def __init__(self, profile: Profile) -> None:
        self._at_poll = profile.frees_slots_at_poll
        self.clear()

    def clear(self) -> None:
        """Free all: the queue is empty, and what is in completion queues frees nothing."""
        self.held = self.unreported = 0
        self._reports: dict[CompletionQueue, deque[int]] = {}

    def reported(self, cq: CompletionQueue, position: int) -> None:
        """Work completed, with the completion of this ``position`` among all of ``cq``."""
        if not self._at_poll:
            self.held -= 1
            return
        reports = self._reports.get(cq)
        if reports is None:
            reports = self._reports[cq] = deque()
        if self.unreported:
            reports.extend([position] * self.unreported)
            self.unreported = 0
        reports.append(position)

    def completed_unseen(self) -> None:
        """Work completed without a completion."""
        if self._at_poll:
            self.unreported += 1
        else:
            self.held -= 1

    def reclaim(self) -> int:
        """Free the slots whose completions were polled; how many are held still."""
        for cq, reports in self._reports.items():
            polled = cq.polled
            while reports and reports[0] <= polled:
                reports.popleft()
                self.held -= 1
        return self.held

    def unpolled(self) -> int:
        """Completions that wait to be polled, as of the last :meth:`reclaim`."""
        return sum(len(set(reports)) for reports in self._reports.values())
