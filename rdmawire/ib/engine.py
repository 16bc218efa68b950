"""The software RNIC: frames in, frames out, without I/O.

No clock, no randomness, no sockets: its driver passes time (ns) and frames. Whatever the bytes of
a frame, ``receive`` leads to a memory access, a response, a state or a counter, never to an
exception.
"""

from collections.abc import Callable, Sequence
from threading import get_ident

from rdmawire.ib.admission import refused
from rdmawire.ib.completer import complete
from rdmawire.ib.encapsulation import Encapsulation, gids_of
from rdmawire.ib.packet_run import Way, run_for
from rdmawire.ib.path_migration import process_migreq
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder import establish, respond
from rdmawire.ib.retransmit import paged_in, timed_out
from rdmawire.ib.rules import RequestRule
from rdmawire.ib.rx_parser import Arrival, Drop, Flow
from rdmawire.ib.scheduler import transmit
from rdmawire.ib.verbs import Verbs
from rdmawire.validate import as_bytes, check_time, check_type
from rdmawire.verbs.ah import FIRST_MULTICAST_LID, PERMISSIVE_LID
from rdmawire.verbs.async_event import Event
from rdmawire.verbs.engine import BURST, in_use, one_thread_at_a_time
from rdmawire.verbs.enums import QPState
from rdmawire.verbs.multicast import MULTICAST_QPN
from rdmawire.wire.native import with_vcrc
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import Medium

_CNP = int(Opcode.CNP)


def is_for_group(frame: bytes, medium: Medium) -> bool:
    """Whether a frame's destination, an Ethernet or IP address or an LID, is that of a group."""
    if medium is Medium.ETHERNET:
        return bool(frame[:1] and frame[0] & GROUP_BIT)
    if medium is Medium.INFINIBAND:
        dlid = int.from_bytes(frame[2:4], "big")
        return FIRST_MULTICAST_LID <= dlid < PERMISSIVE_LID
    version = frame[0] >> 4 if frame else 0
    if version == _IPV4:
        return frame[16] >> 4 == 0xE  # 224.0.0.0/4
    return version == _IPV6 and frame[24] == 0xFF  # ff00::/8


_IPV4, _IPV6 = 4, 6
GROUP_BIT = 1
"""Multicast bit in the first byte of an Ethernet address. IEEE 802, 8.2."""


@one_thread_at_a_time("receive", "transmit")
class Nic(Verbs):
    """One port of an adapter. Raises ``VerbsError`` EBUSY if a second thread enters it."""

    # ``receive`` and ``transmit`` have the steps of ``one_thread`` in place, as they are called
    # for each frame.

    def receive(self, frame: bytes, now: int) -> None:
        """Receive one Ethernet frame, without its FCS."""
        if now.__class__ is not int or frame.__class__ is not bytes:
            check_time(now)
            frame = as_bytes("frame", frame)
        thread = get_ident()  # first: after a call CPython may switch threads
        outer = self._thread
        if outer is None:
            self._thread = thread
        elif outer != thread:
            raise in_use(self)
        try:
            device = self.device
            device.now = now
            if self._up:
                device.rcv_packets += 1
                device.rcv_bytes += len(frame)
                if self._sniffers:
                    self._sniff((frame,))
                arrival = self._rx_parser.parse(frame)
                if arrival is not None:
                    self._take_in(arrival)
            else:
                self.drops[Drop.PORT_DOWN] += 1
        finally:
            self._thread = outer

    def _take_in(self, arrival: Arrival) -> None:
        flow = arrival.flow
        for qp, role in flow.ways or self._find_routes(flow):
            try:
                if not qp.takes_packets:
                    self._turned_away(qp, role)
                    continue
                if flow.special or qp.watches:
                    self._look_at(qp, role, flow)
                if role is None:
                    complete(qp, arrival)
                else:
                    respond(qp, role, arrival)
            except Exception as error:
                self.device.failed(error, qp)

    def _look_at(self, qp: QueuePair, role: RequestRule | None, flow: Flow) -> None:
        """Process the headers before the transport, and the first packet of a connection."""
        if qp.migrating:
            process_migreq(qp, flow)
        if flow.marked:
            _marked(qp)
        encapsulation = flow.encapsulation
        unknown = qp.state is QPState.RTR or encapsulation is not qp.request_encapsulation
        if role is not None and unknown:
            self._hear_peer(qp, encapsulation)

    def _turned_away(self, qp: QueuePair, role: RequestRule | None) -> None:
        """Drop a packet that the queue pair does not accept in its state."""
        self.device.drops[Drop.QP_STATE] += 1
        if role is not None and role is not self.device.rules.cnp:
            qp.flush_late()

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        """Receive ``frames`` in order; runs of packets with one head cost less.

        ``VerbsError`` for the first that is not bytes; those before it are processed.
        """
        if now.__class__ is not int or frames.__class__ is not list:
            check_time(now)
            check_type("frames", frames, Sequence)
        device = self.device
        device.now = now
        if self._sniffers or not self._up:
            frames = self._arriving(frames)
        flow_of, parse = self._rx_parser.flow_of, self._rx_parser.parse
        index, end, data = 0, len(frames), 0
        try:
            while index < end:
                frame = frames[index]
                if frame.__class__ is not bytes:
                    frame = as_bytes("frame", frame)
                flow = flow_of(frame)
                try:
                    taken = 0 if flow is None or flow.run is None else flow.run(flow, frames, index)
                except Exception as error:
                    taken = self._failed_run(flow, error)
                if taken:
                    index += taken
                    data += taken * len(frame)  # the frames of a run have one length
                    continue
                arrival = None if flow is None else parse(frame, flow)
                if arrival is not None:
                    self._take_in(arrival)
                index += 1
                data += len(frame)
        finally:
            device.rcv_packets += index
            device.rcv_bytes += data

    def _failed_run(self, flow: Flow | None, error: Exception) -> int:
        """Report an exception in a run of packets. Return 1: the run's first packet is dropped.

        Raise it if no queue pair is known.
        """
        if flow is None or not flow.ways:
            raise error
        self.device.failed(error, flow.ways[0][0])
        return 1

    def _arriving(self, frames: Sequence[bytes]) -> Sequence[bytes]:
        """Copy frames to sniffers; return them, or none while the link is down."""
        if not self._up:
            self.drops[Drop.PORT_DOWN] += len(frames)
            return ()
        self._sniff([as_bytes("frame", frame) for frame in frames])
        return frames

    def transmit(self, now: int, most: int = BURST) -> list[bytes]:
        """Return at most ``most`` frames to send; none when nothing is ready.

        While the port's link is down they are discarded.
        """
        if now.__class__ is not int or most.__class__ is not int:
            check_time(now)
            check_type("most", most, int)
        thread = get_ident()  # first: after a call CPython may switch threads
        outer = self._thread
        if outer is None:
            self._thread = thread
        elif outer != thread:
            raise in_use(self)
        try:
            return self._transmit(now, most)
        finally:
            self._thread = outer

    def _transmit(self, now: int, most: int) -> list[bytes]:
        device = self.device
        device.now = now
        frames: list[bytes] = []
        ready = device.ready
        while ready and len(frames) < most:
            qp = next(iter(ready))
            del ready[qp]
            try:
                if qp.governor is None:
                    transmit(qp, frames, most)
                else:
                    qp.governor.transmit(frames, most)
            except Exception as error:
                device.failed(error, qp)
            if len(frames) >= most:
                ready[qp] = None
        if device.lid:
            frames = [with_vcrc(frame) for frame in frames]
        if self.groups.by_gid or self._flow_rules:
            self._hear_own(frames)
        if self._sniffers or not self._up:
            frames = self._leaving(frames)
        device.xmit_packets += len(frames)
        device.xmit_bytes += sum(map(len, frames))
        return frames

    def _leaving(self, frames: list[bytes]) -> list[bytes]:
        """Copy frames to sniffers; return them, or none while the link is down."""
        if not self._up:
            self.device.xmit_discards += len(frames)
            return []
        self._sniff(frames)
        return frames

    def _hear_own(self, frames: list[bytes]) -> None:
        """Loop back multicast frames to members and to flows of this port. IBA 10.5.2."""
        for frame in frames:
            if is_for_group(frame, self.device.medium):
                self.receive(frame, self.device.now)

    @property
    def sends_more(self) -> bool:
        """Whether ``transmit`` may return more frames without another call first."""
        return bool(self.device.ready)

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns), or ``None``. Changes no state."""
        device = self.device
        soonest = device.timers.next()
        if device.governors.heap:
            paced = device.governors.next()
            if soonest is None or (paced is not None and paced < soonest):
                soonest = paced
        if not (device.moderated or device.page_waits.heap):
            return soonest
        moderated = (cq.next_timer() for cq in device.moderated.values())
        times = (soonest, device.page_waits.next(), *moderated)
        return min((time for time in times if time is not None), default=None)

    def handle_timer(self, now: int) -> None:
        """Do what is due: retransmissions, ends of RNR and page waits, paced frames, CQ events."""
        check_time(now)
        self.device.now = now
        for timer in self.device.timers.due(now):
            self._expire(timed_out, timer.qp)
        for page_wait in self.device.page_waits.due(now):
            self._expire(paged_in, page_wait.qp)
        for governor in self.device.governors.due(now):
            governor.due(now)
        for cq in self.device.moderated.values():
            if (time := cq.next_timer()) is not None and time <= now:
                cq.handle_timer(now)

    def _expire(self, handle: Callable[[QueuePair], None], qp: QueuePair) -> None:
        """Handle a timer of one queue pair."""
        try:
            handle(qp)
        except Exception as error:
            self.device.failed(error, qp)

    def next_event(self) -> Event | None:
        """Remove and return the oldest event of objects without a channel, or return ``None``."""
        events = self.device.events
        return events.popleft() if events else None

    def _hear_peer(self, qp: QueuePair, encapsulation: Encapsulation) -> None:
        """Note a request in RTR (IBA 11.6.3.1), or one in another encapsulation."""
        qp.answer_in(encapsulation)
        establish(qp)

    def flow_of(self, frame: bytes) -> Flow | None:
        """The flow of frames with this head, if just one queue pair accepts them; else ``None``.

        For frames that an adapter of this process would send: the frame is not received. The flow
        loses its ``ways`` when a queue pair or the port is changed.
        """
        if self._sniffers or not self._up:  # a sniffer gets packets of all messages
            return None
        flow = self._rx_parser.flow_of(frame)
        if flow is None or flow.special or flow.bth.destqp not in self.device.qps:
            return None
        if not flow.ways and refused(self.device.qps[flow.bth.destqp], flow) is not None:
            return None
        return flow if len(flow.ways or self._find_routes(flow)) == 1 else None

    def _find_routes(self, flow: Flow) -> tuple[Way, ...]:
        """Find and store the queue pairs that accept packets of this flow, with their rows."""
        ways = []
        for qp in self._addressed(flow):
            reason = refused(qp, flow)
            if reason is None:
                ways.append((qp, _role(qp, flow)))
            else:
                self.device.drops[reason] += 1
        found = tuple(ways)
        self._rx_parser.route(flow, found, run_for(flow, found))
        return flow.ways

    def _addressed(self, flow: Flow) -> Sequence[QueuePair]:
        """The queue pairs at the packet's destination QP or multicast group. IBA 9.6.1.1."""
        qps = self.device.qps
        qpn = flow.bth.destqp
        if qpn in qps:
            return (qps[qpn],)
        numbers: Sequence[int] = ()
        if qpn == MULTICAST_QPN:
            numbers = self.groups.members(gids_of(flow.headers)[1])
        if not numbers:
            self.device.drops[Drop.NO_QP] += 1
        return [qps[number] for number in numbers]


def _role(qp: QueuePair, flow: Flow) -> RequestRule | None:
    """The row of a request; ``None`` if the packet is a response."""
    rules = qp.device.rules
    if flow.opcode == _CNP:
        return rules.cnp
    if flow.malformed:
        return rules.malformed
    return rules.requests[qp.type].get(flow.opcode)


def _marked(qp: QueuePair) -> None:
    """Count a packet marked Congestion Experienced, and schedule a CNP."""
    qp.counters.np_ecn_marked_roce_packets += 1
    if qp.notifier is not None:
        qp.notifier.marked()
