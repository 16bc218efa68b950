"""Slots of work queues: how much may be posted before something completes. IBA 10.8.6.

A send or receive holds its slot until its owner knows that it is done: until the completion of it,
or of a later one, is polled. Work whose success is not signalled is known to be done by the next
completion alone, so a queue in which nothing is signalled fills up for good, as with mlx5. A
profile may free a slot as soon as its work completes (:attr:`Profile.frees_slots_at_poll`).

Neither completing nor polling does more for this than note one number: a completion queue counts
what was polled, and what that freed is worked out when a queue seems to be full.
"""

from collections import defaultdict, deque

from rdmawire.nic.cq import CompletionQueue
from rdmawire.nic.profile import Profile


class Slots:
    """The slots of one work queue that are in use.

    ``held`` counts them, as of the last :meth:`reclaim`, and those taken since. ``reports`` has,
    for each slot whose work completed, the position (:attr:`CompletionQueue.polled`) of the
    completion that frees it. ``unreported`` counts work that completed without a completion since
    the last one.
    """

    __slots__ = ("_at_poll", "held", "reports", "unreported")

    def __init__(self, profile: Profile) -> None:
        self._at_poll = profile.frees_slots_at_poll
        self.clear()

    def clear(self) -> None:
        """Free all: the queue is empty, and what is in completion queues frees nothing."""
        self.held = self.unreported = 0
        self.reports: defaultdict[CompletionQueue, deque[int]] = defaultdict(deque)

    def report_silent(self, cq: CompletionQueue, position: int) -> None:
        """Work that completed without a completion is freed with this one of ``cq``."""
        self.reports[cq].extend([position] * self.unreported)
        self.unreported = 0

    def reclaim(self) -> int:
        """Free the slots whose completions were polled; how many are held still."""
        if not self._at_poll:
            self.held -= self.unreported
            self.unreported = 0
        for cq, reports in self.reports.items():
            freed = cq.polled if self._at_poll else cq.polled + len(cq)
            while reports and reports[0] <= freed:
                reports.popleft()
                self.held -= 1
        return self.held

    def unpolled(self) -> int:
        """Completions that wait to be polled, as of the last :meth:`reclaim`."""
        return sum(len(set(reports)) for reports in self.reports.values())
