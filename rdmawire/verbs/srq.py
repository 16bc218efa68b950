"""Shared receive queues, IBA 10.2.9 and 11.2.3: receives that several queue pairs use."""

from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from errno import EBUSY, EINVAL, ENOMEM
from typing import NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.memory.key import ProtectionDomain
from rdmawire.validate import check_int, iterate
from rdmawire.verbs.async_event import AsyncChannel, Sink, SRQLimitReached
from rdmawire.verbs.cq import CompletionQueue, Slots
from rdmawire.verbs.profile import IBTA, Bounds, Profile
from rdmawire.verbs.wr import RecvWR, check_receive

_MAX_WR = Bounds(1, lambda profile: profile.max_srq_wr)
_MAX_SGE = Bounds(0, lambda profile: profile.max_srq_sge)


class SRQType(IntEnum):
    """The numbers of ibv_srq_type."""

    BASIC = 0
    XRC = 1


class XRCReceiver(NamedTuple):
    """Additional attributes of an XRC SRQ: its domain, and the CQ of its receives."""

    domain: int
    cq: CompletionQueue


class SharedReceiveQueue:
    """A queue for ``max_wr`` receives of ``max_sge`` SGEs each; events go to ``sink``.

    With ``xrc`` it is of type XRC. ``limit`` is the number of receives below which an event is
    reported, once; 0 disables it. ``qps`` are the numbers of the queue pairs that receive from it.
    ``VerbsError`` EINVAL for sizes beyond the profile's limits (ibv_create_srq(3)).
    """

    __slots__ = (
        "_held",
        "_profile",
        "_sink",
        "async_channel",
        "limit",
        "max_sge",
        "max_wr",
        "number",
        "pd",
        "qps",
        "slots",
        "xrc",
    )

    def __init__(
        self,
        number: int,
        pd: ProtectionDomain,
        max_wr: int,
        max_sge: int,
        sink: Sink,
        *,
        profile: Profile = IBTA,
        xrc: XRCReceiver | None = None,
        async_channel: AsyncChannel | None = None,
    ) -> None:
        _MAX_WR.check("max_wr", max_wr, profile)
        _MAX_SGE.check("max_sge", max_sge, profile)
        self.number = number
        self.pd = pd
        self.xrc = xrc
        self.async_channel = async_channel
        self.qps: set[int] = set()
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.limit = 0
        self._held: deque[RecvWR] = deque()
        self._sink = sink
        self._profile = profile
        self.slots = Slots(profile)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        limit = f", limit {self.limit}" if self.limit else ""
        kind = "SRQ" if self.xrc is None else "XRC SRQ"
        return f"<{kind} {self.number}: {len(self._held)} of {self.max_wr} receives{limit}>"

    @property
    def type(self) -> SRQType:
        """Whether it serves queue pairs of one process or an XRC domain."""
        return SRQType.BASIC if self.xrc is None else SRQType.XRC

    def post_recv(self, work: RecvWR | Iterable[RecvWR]) -> None:
        """Queue one receive or several in order. ibv_post_srq_recv(3).

        ``VerbsError`` for the first that is refused, those before it are posted: ENOMEM if the
        queue is full, EINVAL for too many SGEs.
        """
        for wr in (work,) if isinstance(work, RecvWR) else iterate("work", work):
            self._post(wr)

    def _post(self, wr: RecvWR) -> None:
        wr = check_receive(wr, self.max_sge)
        if self.slots.held >= self.max_wr and self.free < 1:
            raise VerbsError(f"SRQ {self.number} is full: {self._fullness()}", ENOMEM)
        self.slots.held += 1
        self._held.append(wr)

    @property
    def free(self) -> int:
        """How many receives may be posted now.

        A device that frees slots without a poll does so when a receive is taken.
        """
        held = self.slots.reclaim()
        return self.max_wr - (held if self._profile.frees_slots_at_poll else len(self._held))

    def _fullness(self) -> str:
        """The error text for a full queue: the receives that hold its slots."""
        taken = self.slots.held - len(self._held)
        return f"max_wr {self.max_wr}, {taken} of them taken and not polled from a CQ"

    def give_up(self) -> None:
        """Free the slot of a receive that was taken and will never complete."""
        self.slots.held -= 1

    @property
    def oldest(self) -> RecvWR | None:
        """The receive that :meth:`take` returns next."""
        return self._held[0] if self._held else None

    def take(self) -> RecvWR | None:
        """Remove and return the oldest receive, or return ``None``."""
        held = self._held
        if not held:
            return None
        wr = held.popleft()
        if len(held) < self.limit:
            self._reached()
        return wr

    def modify(self, max_wr: int | None = None, limit: int | None = None) -> None:
        """Resize, arm the limit, or both; all or nothing. ibv_modify_srq(3).

        A limit above the number of receives is reported at once (soft-RoCE waits until one is
        taken). ``VerbsError`` EINVAL for a size below that number, or a limit above the size.
        """
        size = self.max_wr if max_wr is None else max_wr
        lowest = self.limit if limit is None else limit
        _MAX_WR.check("max_wr", size, self._profile)
        held = self.max_wr - self.free
        if size < held:
            raise VerbsError(f"max_wr {size} is less than the {held} held", EINVAL)
        check_int("srq_limit", lowest, 0, size)
        self.max_wr, self.limit = size, lowest
        if len(self._held) < lowest:
            self._reached()

    def acquire(self) -> None:
        """Register as a user of its protection domain, and for XRC of its CQ."""
        self.pd.acquire()
        if self.xrc is not None:
            self.xrc.cq.srqs.add(self.number)

    def release(self) -> None:
        """Undo :meth:`acquire`."""
        self.pd.release()
        if self.xrc is not None:
            self.xrc.cq.srqs.discard(self.number)

    def check_unused(self) -> None:
        """``VerbsError`` EBUSY while queue pairs use it. ibv_destroy_srq(3)."""
        if self.qps:
            raise VerbsError(f"SRQ {self.number} is used by {len(self.qps)} queue pairs", EBUSY)

    def _reached(self) -> None:
        self.limit = 0
        self._sink(SRQLimitReached(self.number))


class XRCDomains:
    """The open XRC domains of an adapter, by number, with the number of queues in each."""

    def __init__(self) -> None:
        self._users: dict[int, int] = {}

    def open(self, domain: int) -> int:
        """Add a new, empty domain."""
        self._users[domain] = 0
        return domain

    def close(self, domain: int) -> None:
        """Close a domain. ``VerbsError`` EBUSY while shared receive queues or targets are in it."""
        self.check(domain)
        if users := self._users[domain]:
            raise VerbsError(f"XRC domain {domain} is used by {users} queues", EBUSY)
        del self._users[domain]

    def check(self, domain: int) -> None:
        """``VerbsError`` EINVAL for a number that is not an open domain."""
        check_int("xrc_domain", domain)
        if domain not in self._users:
            raise VerbsError(f"{domain} is no XRC domain of this adapter, or was closed", EINVAL)

    def enter(self, domain: int) -> None:
        """Count one more queue in a domain."""
        self._users[domain] += 1

    def leave(self, domain: int) -> None:
        """Count one queue less in a domain."""
        self._users[domain] -= 1
