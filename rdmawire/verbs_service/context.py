"""One ``ibv_context``: its objects and rings, and their destruction.

A context owns what its process created. :meth:`Context.close` destroys all objects in an order that
the engine allows, also if the process died in the middle of a call. Protection domains, regions and
device memory belong to the :class:`DeviceFile`: another process can import them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from errno import EBUSY, EINVAL
from struct import Struct
from typing import Final, TypeVar

from rdmawire.errors import VerbsError, raise_error
from rdmawire.ib import FlowCounter, FlowRule, QueuePair, RssHash
from rdmawire.ib.local_peer import LocalConnections
from rdmawire.ib.port import PORT
from rdmawire.memory import MemoryWindow, Region
from rdmawire.memory.mr_table import AllocatedPD
from rdmawire.verbs import (
    AddressHandle,
    AsyncChannel,
    Event,
    SharedReceiveQueue,
)
from rdmawire.verbs_service.device import EmulatedDevice
from rdmawire.verbs_service.device_memory import DeviceMemory
from rdmawire.verbs_service.events import Channel, EventPipe
from rdmawire.verbs_service.process_memory import CopyThread, ProcessMemory, Turns, do_nothing
from rdmawire.verbs_service.ring import CompletionRing, SrqHandles, WorkRing

_EVENT: Final = Struct("=QQ")
MAX_OBJECTS: Final = 1 << 20
"""Maximum objects of one context."""


class XrcDomain:
    """An XRC domain that a context has open. ``file`` is the device and inode that share it."""

    def __init__(self, number: int, file: tuple[int, int] | None) -> None:
        self.number = number
        self.file = file


class QueuePairHandle:
    """A queue pair that a context has created, or has opened: an XRC target of another context.

    Work queues are queue pairs, too. ``rss`` has the work queues of an indirection table, with the
    hash. ``counters`` has the counters of its completions, each with the operations that it counts
    (bits of :data:`~rdmawire.verbs_service.protocol.COUNTED_OPERATIONS`).
    """

    def __init__(
        self, qp: QueuePair, rss: tuple[tuple[QueuePair, ...], RssHash] | None = None
    ) -> None:
        self.qp = qp
        self.rss = rss
        self.counters: dict[CompletionCounter, int] = {}
        self.events_reported = 0

    @property
    def number(self) -> int:
        """The number of the queue pair."""
        return self.qp.qp_num


class CompletionCounter:
    """Counts completions of queue pairs: ibv_create_comp_cntr(3).

    ``values`` are the number of successful ones, or of their bytes with ``counts_bytes``, and the
    number of errors. ``users`` is the number of queue pairs.
    """

    def __init__(self, *, counts_bytes: bool) -> None:
        self.counts_bytes = counts_bytes
        self.values = [0, 0]
        self.users = 0


class SrqHandle:
    """A shared receive queue of one context."""

    def __init__(self, srq: SharedReceiveQueue) -> None:
        self.srq = srq
        self.events_reported = 0

    @property
    def number(self) -> int:
        """The number of the SRQ in the engine."""
        return self.srq.number


class CqHandle:
    """A completion queue of one context, and its channel."""

    def __init__(self, cq: CompletionRing, channel: Channel | None) -> None:
        self.cq = cq
        self.channel = channel
        self.events_reported = 0

    @property
    def number(self) -> int:
        """The number of the CQ in the engine."""
        return self.cq.number


Object = (
    AllocatedPD
    | Region
    | MemoryWindow
    | DeviceMemory
    | Channel
    | CqHandle
    | SrqHandle
    | QueuePairHandle
    | AddressHandle
    | XrcDomain
    | FlowRule
    | FlowCounter
    | CompletionCounter
)
T = TypeVar("T", bound=Object)
Reporter = CqHandle | SrqHandle | QueuePairHandle


class ObjectTable(dict[int, Object]):
    """Objects by handle. ``counts`` is the number of those of each class.

    ``reporters`` has the objects of asynchronous events by handle, for each class and number: a
    client may have a million of other objects.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[type[Object]] = Counter()
        self.reporters: dict[tuple[type[Object], int], dict[int, Reporter]] = {}

    def put(self, handle: int, thing: Object) -> None:
        """Add an object."""
        self[handle] = thing
        self.counts[type(thing)] += 1
        if isinstance(thing, Reporter):
            self.reporters.setdefault((type(thing), thing.number), {})[handle] = thing

    def take(self, handle: int) -> None:
        """Remove an object, if there is one."""
        thing = self.pop(handle, None)
        if thing is None:
            return
        self.counts[type(thing)] -= 1
        if isinstance(thing, Reporter):
            key = type(thing), thing.number
            del self.reporters[key][handle]
            if not self.reporters[key]:
                del self.reporters[key]


_MAX_SKIPPED: Final = 256
"""Maximum objects of other kinds that one step of closing a context passes over."""
_ENGINE_OBJECTS: Final = (Region, MemoryWindow, CompletionRing, SharedReceiveQueue)
"""Classes of the engine's objects of a context, besides queue pairs."""


class DeviceFile:
    """What the contexts of an open device share: the one that opened it, and those that import it.

    In Linux the contexts of one open file of ``/dev/infiniband`` share it. ``identity`` is the
    device and inode of the ``cmd_fd``. No two objects of these contexts have the same handle.
    ``closing`` frees the memory of processes that regions have: it is closed with the last context.
    """

    def __init__(self, identity: tuple[int, int]) -> None:
        self.identity = identity
        self.objects = ObjectTable()
        self.users = 0
        self.closing = ExitStack()
        self._next = 1

    def take_handle(self) -> int:
        """Return a handle that no object of these contexts ever had."""
        handle = self._next
        self._next += 1
        return handle


class Context:
    """The objects of one process on one device.

    ``process`` is the memory of the process, ``None`` where Linux refuses access: then the library
    copies. :meth:`close` closes it. ``file`` is that of an imported device, ``None`` for a device
    that the process opens itself. ``failed`` is called with exceptions of work that another context
    may have caused. ``turns`` counts the steps of the service. ``OSError`` without descriptors or
    memory.
    """

    def __init__(
        self,
        device: EmulatedDevice,
        pid: int,
        process: ProcessMemory | None,
        file: DeviceFile | None = None,
        *,
        turns: Turns,
    ) -> None:
        self.device = device
        self.nic = device.nic
        self.pid = pid
        self.process = process
        with ExitStack() as made:
            self.ring = WorkRing()
            made.callback(self.ring.close)
            self.copies = CopyThread(turns)
            made.callback(self.copies.close)
            self.pipe = EventPipe()
            made.pop_all()
        self.file = file or DeviceFile(self.ring.identity)
        self.file.users += 1
        self.is_registered = False
        """Whether a region has, or had, memory of the process."""
        self.async_channel: AsyncChannel = self.nic.create_async_channel()
        self.qps: dict[int, QueuePair] = {}
        """The queue pairs of this context, by number."""
        self.srqs = SrqHandles(self.nic.device.qps)
        self.local = LocalConnections(device.local_nics)
        self.mcast: dict[QueuePair, set[bytes]] = {}
        """The multicast groups of queue pairs."""
        self.rss_users: Counter[QueuePair] = Counter()
        """How many times queue pairs of RSS use each work queue."""
        self.counter_users: Counter[FlowCounter] = Counter()
        """How many flows each counter counts."""
        self._channels: dict[int, Channel] = {}
        self._objects = ObjectTable()
        self.failed: Callable[[Exception], None] = raise_error
        self._closed = False

    # Objects.

    def add(self, thing: Object) -> int:
        """Give an object a handle, which no other object of the file ever has."""
        handle = self.file.take_handle()
        is_shared = isinstance(thing, AllocatedPD | Region | DeviceMemory)
        (self.file.objects if is_shared else self._objects).put(handle, thing)
        if isinstance(thing, Channel):
            self._channels[handle] = thing
        return handle

    def check_room(self) -> None:
        """``VerbsError`` EINVAL if the context has as many objects as it may."""
        if len(self._objects) + len(self.file.objects) >= MAX_OBJECTS:
            raise VerbsError(f"a context has at most {MAX_OBJECTS} objects", EINVAL)

    def find(self, handle: int, kind: type[T]) -> T:
        """An object by its handle. ``VerbsError`` EINVAL if there is none of this kind."""
        found = self._objects.get(handle) or self.file.objects.get(handle)
        if not isinstance(found, kind):
            raise VerbsError(f"handle {handle} is no {kind.__name__} of this context", EINVAL)
        return found

    def find_optional(self, handle: int, kind: type[T]) -> T | None:
        """An object by its handle; ``None`` for handle 0."""
        return self.find(handle, kind) if handle else None

    def remove(self, handle: int) -> None:
        """Remove the handle of an object that is destroyed."""
        for table in self.tables:
            table.take(handle)
        self._channels.pop(handle, None)

    @property
    def tables(self) -> tuple[ObjectTable, ObjectTable]:
        """The objects of this context, and those that contexts of its file share."""
        return self._objects, self.file.objects

    def owns(self, thing: object) -> bool:
        """Whether this context has an object of the engine or the service."""
        if isinstance(thing, QueuePair):
            return self.qps.get(thing.qp_num) is thing
        parts = (self, self.ring, self.copies, self.pipe, self.process, self.local, self.srqs)
        if thing is not None and any(thing is part for part in parts):
            return True
        return isinstance(thing, _ENGINE_OBJECTS) and any(
            thing is one or thing is getattr(one, "cq", one) or thing is getattr(one, "srq", one)
            for one in (*self._objects.values(), *self.file.objects.values())
        )

    # Events.

    def notifier(self, handle: int, owner: CqHandle) -> Callable[[], None] | None:
        """Return the function with which a CQ reports an event; ``None`` without a channel."""
        if owner.channel is None:
            return None
        pipe, event = owner.channel.pipe, handle.to_bytes(8, "little")

        def notify() -> None:
            owner.events_reported += 1
            pipe.put(event)

        return notify

    def report_events(self) -> None:
        """Write the asynchronous events of the engine to the pipe."""
        events = self.async_channel.events
        while events:
            found = self._named(events.popleft())
            if found is not None:
                self.pipe.put(_EVENT.pack(*found))

    def _named(self, event: Event) -> tuple[int, int] | None:
        """The type of an event and the number of its object; ``None`` if that is destroyed."""
        kind = int(event.TYPE)  # type: ignore[union-attr]
        for what, name in _REPORTERS:
            number = getattr(event, name, None)
            if number is not None:
                found = self._objects.reporters.get((what, number), {})
                first = next(iter(found.items()), None)
                return None if first is None else (kind, _reported(*first))
        return kind, PORT

    def flush_events(self) -> None:
        """Write events that are pending because a pipe was full, and take a late copy's answer."""
        self.copies.take_late_answer()
        if self.pipe.is_full:
            self.pipe.flush()
        for channel in self._channels.values():
            channel.pipe.flush()

    # Destruction.

    def destroy_qp(self, handle: int, owner: QueuePairHandle) -> None:
        """Destroy a queue pair; one that other contexts have open stays until the last is gone.

        ``VerbsError`` EBUSY for a work queue that a queue pair of RSS uses.
        """
        qp = owner.qp
        if self.rss_users[qp]:
            raise VerbsError(f"WQ {qp.qp_num:#x} is in an indirection table", EBUSY)
        if self.device.openers[qp] == 1:
            for gid in self.mcast.pop(qp, ()):
                self.nic.detach_mcast(qp, gid)
            self.nic.destroy_qp(qp)
            del self.device.openers[qp]
        else:
            self.device.openers[qp] -= 1
        for counter in owner.counters:
            counter.users -= 1
        if owner.rss is not None:
            self.rss_users.subtract(owner.rss[0])
        self.remove(handle)
        self.qps.pop(qp.qp_num, None)
        self.rss_users.pop(qp, None)
        self.local.forget(qp.qp_num)

    def destroy_flow(self, handle: int, rule: FlowRule) -> None:
        """Destroy a flow."""
        self.nic.destroy_flow(rule)
        if rule.counter is not None:
            self.counter_users[rule.counter] -= 1
        self.remove(handle)

    def destroy_srq(self, handle: int, owner: SrqHandle) -> None:
        """Destroy a shared receive queue. ``VerbsError`` EBUSY while queue pairs use it."""
        self.nic.destroy_srq(owner.srq)
        del self.srqs.handles[owner.srq.number]
        self.remove(handle)

    def destroy_cq(self, handle: int, owner: CqHandle) -> None:
        """Destroy a completion queue. ``VerbsError`` EBUSY while queues complete there."""
        self.nic.destroy_cq(owner.cq)
        owner.cq.close()
        if owner.channel is not None:
            owner.channel.users -= 1
        self.remove(handle)

    def destroy_channel(self, handle: int, channel: Channel) -> None:
        """Destroy a completion channel. ``VerbsError`` EBUSY while CQs use it."""
        if channel.users:
            raise VerbsError(f"channel {handle} is used by {channel.users} CQs", EBUSY)
        channel.pipe.close()
        self.remove(handle)

    def dealloc_mw(self, handle: int, window: MemoryWindow) -> None:
        """Free a window."""
        self.nic.memory.dealloc_mw(window)
        self.remove(handle)

    def dereg_mr(self, handle: int, region: Region) -> None:
        """Free a region. ``VerbsError`` EBUSY while windows are bound to it."""
        self.nic.memory.dereg_mr(region)
        self.remove(handle)

    def free_dm(self, handle: int, memory: DeviceMemory) -> None:
        """Free device memory. ``VerbsError`` EBUSY while it is registered."""
        if memory.regions:
            raise VerbsError(f"device memory {handle} has {memory.regions} regions", EBUSY)
        memory.free()
        self.remove(handle)

    def close_xrcd(self, handle: int, domain: XrcDomain) -> None:
        """Close an XRC domain; one that other contexts have open stays for them."""
        files = self.device.xrc_files
        number, users = files.get(domain.file, (domain.number, 1)) if domain.file else (0, 1)
        if users > 1 and domain.file:
            files[domain.file] = number, users - 1
        else:
            self.nic.close_xrcd(domain.number)
            if domain.file:
                del files[domain.file]
        self.remove(handle)

    def dealloc_pd(self, handle: int, pd: AllocatedPD) -> None:
        """Free a protection domain. ``VerbsError`` EBUSY while anything is in it."""
        self.nic.dealloc_pd(pd)
        self.remove(handle)

    def close(self) -> None:
        """Do all steps of :meth:`closing`."""
        for _ in self.closing():
            pass

    def closing(self) -> Iterator[None]:
        """Destroy all objects, one before each step, and at the end free rings and descriptors.

        If that raises exceptions, all other objects are destroyed before the first one is raised.
        """
        if self._closed:
            return
        self._closed = True
        self.copies.on_late = self.copies.on_answer = do_nothing
        failed: list[Exception] = []
        yield from self._destroy(FlowRule, self.destroy_flow, failed)
        yield from self._destroy(QueuePairHandle, self.destroy_qp, failed)
        yield from self._destroy(QueuePairHandle, self.destroy_qp, failed)  # work queues
        yield from self._destroy(SrqHandle, self.destroy_srq, failed)
        yield from self._destroy(CqHandle, self.destroy_cq, failed)
        yield from self._destroy(Channel, self.destroy_channel, failed)
        yield from self._destroy(MemoryWindow, self.dealloc_mw, failed)
        yield from self._destroy(XrcDomain, self.close_xrcd, failed)
        if self.file.users == 1:  # what the contexts of a file share
            yield from self._destroy(Region, self.dereg_mr, failed)
            yield from self._destroy(DeviceMemory, self.free_dm, failed)
            yield from self._destroy(AllocatedPD, self.dealloc_pd, failed)
        with ExitStack() as last:  # each of them, whatever the others raise
            last.callback(self.pipe.close)
            last.callback(self.ring.close)
            last.callback(self.nic.destroy_async_channel, self.async_channel)
            last.callback(self._leave_file)
        if failed:
            raise failed[0]

    def _leave_file(self) -> None:
        """Free the memory of the process unless regions of other contexts have it."""
        self.file.users -= 1
        with ExitStack() as last:
            if self.process is not None:
                last.callback(self.process.close)
            last.callback(self.copies.close)
            if not self.file.users:
                last.callback(self.file.closing.close)
            elif self.is_registered:
                self.file.closing.callback(last.pop_all().close)

    def _destroy(
        self, kind: type[T], destroy: Callable[[int, T], None], failed: list[Exception]
    ) -> Iterator[None]:
        """Destroy all objects of a kind, except those that another process still uses."""
        for number, handle in enumerate((*self._objects, *self.file.objects)):
            thing = self._objects.get(handle) or self.file.objects.get(handle)
            if isinstance(thing, kind):
                try:
                    destroy(handle, thing)
                except VerbsError:
                    continue
                except Exception as error:
                    failed.append(error)
            elif number % _MAX_SKIPPED:
                continue
            yield


_REPORTERS: Final = ((CqHandle, "cq"), (SrqHandle, "srq"), (QueuePairHandle, "qp"))
"""Classes of objects, and the attributes of their events with the object's number."""


def _reported(handle: int, reporter: Reporter) -> int:
    """Count an event of an object, and return what names the object to the library."""
    if isinstance(reporter, CqHandle):
        return handle  # events_reported are those of completions
    reporter.events_reported += 1
    return reporter.number if isinstance(reporter, QueuePairHandle) else handle


CONTEXT_KINDS: Final = (
    Context,
    QueuePair,
    WorkRing,
    CopyThread,
    EventPipe,
    ProcessMemory,
    *_ENGINE_OBJECTS,
)
"""Classes of objects that :meth:`Context.owns` knows."""
