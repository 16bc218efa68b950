"""Slots of work queues: how many work requests a queue holds. IBA 10.8.6.

A work request holds its slot until its completion, or a later one of the same queue, is polled. An
unsignaled send has no completion of its own, so a queue in which no send is signaled stays full,
as with mlx5 (rdma-core, providers/mlx5/cq.c). A profile may free a slot as soon as its work
completes (:attr:`Profile.frees_slots_at_poll`).

Completing and polling only note one number for this: a completion queue counts what was polled, and
the slots that this freed are counted when a work queue seems to be full.
"""

from collections import defaultdict, deque

from rdmawire.nic.cq import CompletionQueue
from rdmawire.nic.profile import Profile


class Slots:
    """The slots of one work queue that are in use.

    ``held`` counts them as of the last :meth:`reclaim`, and those taken since. ``reports`` has, for
    each slot and by completion queue, the number of the completion that frees it
    (:meth:`CompletionQueue.push`). ``unreported`` counts unsignaled work that completed since the
    last completion.
    """

    __slots__ = ("_at_poll", "held", "reports", "unreported")

    def __init__(self, profile: Profile) -> None:
        self._at_poll = profile.frees_slots_at_poll
        self.clear()

    def clear(self) -> None:
        """Free all slots: the queue was emptied, and unpolled completions free nothing more."""
        self.held = self.unreported = 0
        self.reports: defaultdict[CompletionQueue, deque[int]] = defaultdict(deque)

    def report_silent(self, cq: CompletionQueue, position: int) -> None:
        """Free unsignaled work that completed with the completion number ``position`` of ``cq``."""
        self.reports[cq].extend([position] * self.unreported)
        self.unreported = 0

    def reclaim(self) -> int:
        """Free the slots whose completions were polled. Return how many are still held."""
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
        """How many completions were not polled as of the last :meth:`reclaim`."""
        return sum(len(set(reports)) for reports in self.reports.values())
