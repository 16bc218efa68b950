"""Ethernet switches: store and forward by MAC address, with queues, ECN marks and PFC.

Each port of a switch is attached to the simulator as a port of its own; this file has the ports and
what they share: the buffer and the address table. The route and the priority of a flow are found
once and cached until the address table changes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from rdmawire.errors import FabricError
from rdmawire.fabric.classify import MAX_KEYS, PRIORITIES, Classifier, key_of, marked
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import QUANTUM, duration, framing_of
from rdmawire.fabric.pfc import MAX_QUANTA, pfc_frame, quanta_of
from rdmawire.fabric.port_queue import OWN, PortQueue, Queued, RatedLink, TrafficClass
from rdmawire.fabric.switch_config import Marking, SwitchSettings
from rdmawire.wire.inet import Ethernet, EtherType


class Buffer:
    """Counts the bytes in a switch, in total and by ingress port and priority."""

    __slots__ = ("_held", "_pausing", "_settings", "peak", "used")

    def __init__(self, settings: SwitchSettings) -> None:
        self._settings = settings
        self._pausing = [settings.pausing.get(priority) for priority in range(PRIORITIES)]
        self._held: list[list[int]] = []
        self.used = 0
        self.peak = 0

    def add_port(self) -> None:
        """Add an ingress port."""
        self._held.append([0] * PRIORITIES)

    def held(self, ingress: int, priority: int) -> int:
        """Queued bytes of a priority that came in by a port."""
        return self._held[ingress][priority]

    def take(self, size: int, traffic_class: TrafficClass, queued: int) -> bool:
        """Accept a frame of ``size`` bytes for a queue that holds ``queued`` bytes, if it fits."""
        used = self.used + size
        priority, ingress, _ = traffic_class
        held = self._held[ingress]
        pausing = self._pausing[priority]
        if pausing is None:
            room = queued + size <= self._settings.queue
        else:
            room = held[priority] + size <= pausing.xoff + pausing.headroom
        if not room or used > self._settings.buffer:
            return False
        self.used = used
        if used > self.peak:  # noqa: PLR1730 - faster than max(), for each frame
            self.peak = used
        held[priority] += size
        return True

    def release(self, size: int, priority: int, ingress: int) -> None:
        """Free the ``size`` bytes of a frame that leaves."""
        self.used -= size
        self._held[ingress][priority] -= size

    def overfull(self, ingress: int, priority: int) -> bool:
        """Whether to pause the peer of an ingress port."""
        pausing = self._pausing[priority]
        return pausing is not None and self._held[ingress][priority] > pausing.xoff

    def drained(self, ingress: int, priority: int) -> bool:
        """Whether the paused peer of an ingress port may resume."""
        pausing = self._pausing[priority]
        return pausing is None or self._held[ingress][priority] <= pausing.xon


Ports: TypeAlias = tuple[int, ...]
GROUP_BIT: Final = 1
"""Bit in the first byte of an Ethernet address: a group address. IEEE 802, 8.2."""

_SPREAD: Final = 0x9E3779B1  # odd, near 2**32 divided by the golden ratio: spreads similar values
_WORD: Final = 0xFFFFFFFF


def chosen(ports: Ports, flow: bytes, seed: int) -> int:
    """Choose one of several equal paths, the same for all frames of a flow.

    CRCs alone are linear: switches that differ only in their ``seed`` would split flows alike.
    """
    if len(ports) == 1:
        return ports[0]
    mixed = (crc32(flow) ^ seed & _WORD) * _SPREAD & _WORD
    mixed = (mixed ^ mixed >> 15) * _SPREAD & _WORD
    return ports[(mixed >> 16) % len(ports)]


class AddressTable:
    """MAC address to egress ports. Static entries (:meth:`give`) stay; others are learnt.

    ``max_learnt`` addresses are learnt; frames to more addresses are flooded.
    """

    __slots__ = ("_given", "_learnt", "_max_learnt")

    def __init__(self, max_learnt: int) -> None:
        self._given: dict[bytes, Ports] = {}
        self._learnt: dict[bytes, int] = {}
        self._max_learnt = max_learnt

    def give(self, mac: bytes, ports: Iterable[int]) -> None:
        """Add a static entry. Several ports are equal paths."""
        self._given[mac] = tuple(ports)

    def learn(self, mac: bytes, port: int) -> bool:
        """Learn the port of a source address. Return whether that is new."""
        if mac in self._given or mac[0] & GROUP_BIT or self._learnt.get(mac) == port:
            return False
        if mac not in self._learnt and len(self._learnt) >= self._max_learnt:
            return False
        self._learnt[mac] = port
        return True

    def given(self, mac: bytes) -> Ports:
        """Ports of a static entry; none if there is no such entry."""
        return self._given.get(mac, ())

    def learnt(self, mac: bytes) -> int | None:
        """Port at which an address was learnt, if it was."""
        return self._learnt.get(mac)


RESERVED: Final = b"\x01\x80\xc2\x00\x00"
"""First bytes of addresses that are not forwarded if the last is below 0x10. 802.1Q, 8.6.3."""


OnCounted = Callable[[Envelope], object]
"""Function called with each frame for which the switch counted something."""


class Route(NamedTuple):
    """Egress ports and traffic class of a flow; with ``is_choice`` each frame takes one of them."""

    ports: "tuple[SwitchPort, ...]"
    traffic_class: TrafficClass
    is_choice: bool = False


class Arbiter:
    """Decides which ingress port's frame gets the last slot in one full queue.

    If the first frame always got it, hosts whose frames arrive at the same instant would be served
    in a fixed order, and of hosts with the same rate the one that is slightly earlier would get
    everything (S. Floyd and V. Jacobson, On Traffic Phase Effects in Packet-Switched Gateways,
    1992). So the port that had it longest ago gets it; ``random`` breaks ties, as at the start.
    """

    __slots__ = ("_kept", "_random", "_turn")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kept: dict[int, int] = {}
        self._turn = 0

    def prefers(self, port: int, other: int) -> bool:
        """Whether a frame from ``port`` replaces one from ``other`` in the last slot."""
        mine, others = self._kept.get(port, 0), self._kept.get(other, 0)
        return mine < others or (mine == others and bool(self._random.getrandbits(1)))

    def keep(self, port: int) -> None:
        """Record that a frame from this port had the last slot when the queue had room again."""
        self._turn += 1
        self._kept[port] = self._turn


class SwitchPort:
    """One port of a switch.

    - ``drops``, ``marks``: frames by priority that did not fit a queue of this port, and
      that got an ECN mark.
    - ``stops``: PFC pauses that this port sent, by priority.
    - ``paused_priorities``: priorities that the peer was asked to pause.
    - ``arbiter``: decides whose frame gets the last slot in a full queue; ``contested`` has a bit
      for each priority whose last slot is contested.
    - ``in_spanning_tree``: whether frames to unknown addresses may use this port. All ports of a
      network without loops are in the tree.
    """

    __slots__ = (
        *("_refresh", "_routes", "arbiter", "contested", "drops", "egress", "mac", "marks"),
        *("number", "in_spanning_tree", "stops", "switch", "paused_priorities", "wake"),
    )

    def __init__(
        self, switch: "Switch", number: int, mac: bytes, link: RatedLink, *, in_spanning_tree: bool
    ) -> None:
        self.switch = switch
        self.in_spanning_tree = in_spanning_tree
        self.number = number
        self.mac = mac
        scheduling, framing = switch.settings.scheduling, framing_of(link)
        self.egress = PortQueue[Envelope](link.rate, scheduling, framing)
        self.arbiter = None if switch.draws is None else Arbiter(switch.draws)
        self.wake: Callable[[], None] = _do_nothing
        self.drops: Counter[int] = Counter()
        self.marks: Counter[int] = Counter()
        self.stops: Counter[int] = Counter()
        self._routes: dict[bytes, Route] = {}
        self.paused_priorities: set[int] = set()
        self.contested = 0
        self._refresh = 0

    def receive(self, frame: Envelope, now: int) -> None:
        """Receive a frame: obey MAC control, forward everything else."""
        key = key_of(frame.data)
        route = self._routes.get(key)
        if route is None:
            if key[12:14] == _MAC_CONTROL:
                self._obey(frame, now)
                return
            route = self._find(key)
        if not route.ports:
            self.switch.drop_unroutable(frame)
        ports = self.switch.balance(route.ports) if route.is_choice else route.ports
        for port in ports:
            self.switch.forward(frame, route.traffic_class, port, now)

    def _obey(self, frame: Envelope, now: int) -> None:
        """Obey a PAUSE or PFC frame; drop other MAC control. IEEE 802.3, 31."""
        quanta = quanta_of(frame.data)
        if quanta is None:
            self.switch.drop_unroutable(frame)
        else:
            self.egress.pause(quanta, now)
            self.wake()

    def _find(self, key: bytes) -> Route:
        if len(self._routes) >= MAX_KEYS:
            self._routes.clear()
        route = self.switch.route(self, key)
        self._routes[key] = route
        return route

    def clear_routes(self) -> None:
        """Clear cached routes: the address table has changed."""
        self._routes.clear()

    def transmit(self, now: int) -> list[Envelope]:
        """Return the next frame, if the wire is free and no pause stops it."""
        item = self.egress.take(now)
        if item is None:
            return []
        # By index, as for each frame: the ingress port of its class.
        return [item[0] if item[1][1] == OWN else self.switch.release(item, self, now)]

    def next_timer(self) -> int | None:
        """When the next queued frame may be sent, or a pause must be refreshed (ns)."""
        due = self.egress.next_time()
        if self.paused_priorities and (due is None or self._refresh < due):
            return self._refresh
        return due

    def handle_timer(self, now: int) -> None:
        """Refresh the pauses that are still needed."""
        if self.paused_priorities and self._refresh <= now:
            for priority in sorted(self.paused_priorities):
                self._send_pfc(priority, MAX_QUANTA, now)

    def pause(self, priority: int, now: int) -> None:
        """Pause a priority of the peer, if it is not paused."""
        if priority not in self.paused_priorities:
            self.paused_priorities.add(priority)
            self.stops[priority] += 1
            self._send_pfc(priority, MAX_QUANTA, now)

    def resume(self, priority: int, now: int) -> None:
        """Resume a priority of the peer, if it is paused."""
        if priority in self.paused_priorities:
            self.paused_priorities.remove(priority)
            self._send_pfc(priority, 0, now)

    def _send_pfc(self, priority: int, quanta: int, now: int) -> None:
        self._refresh = now + duration(MAX_QUANTA * QUANTUM, self.egress.rate) // 2
        frame = pfc_frame(self.mac, priority, quanta)
        self.egress.put_control(Envelope(frame), len(frame))
        self.wake()


_NOWHERE: Final = Route((), TrafficClass())
_MAC_CONTROL: Final = EtherType.MAC_CONTROL.to_bytes(2, "big")


def _do_nothing() -> None:
    """Do nothing: the port is not attached yet."""


class Switch:
    """A switch.

    - ``settings``: its buffer, queues, priorities, ECN marks and pauses.
    - ``random``: decides about ECN marks if their probability is not 0 or 1.
    - ``draws``: random numbers of the :class:`Arbiter`, which gives ingress ports equal shares of a
      full queue. Without it, frames are queued in order of arrival.
    - ``stranded``: number of frames that have no route: runts, MAC control, frames to the switch
      itself, and frames whose only route is their ingress port. Ports count everything else.
    - ``on_counted``: functions called with each frame for which the switch or a port counted a
      drop, a mark, a pause or a missing route.

    A frame to an address with a static entry takes one of its ports. Any other frame stays in the
    spanning tree: it goes to the port at which its address was learnt, or else to all ports. So no
    frame circulates, whatever the topology.
    """

    def __init__(
        self,
        name: str = "switch",
        settings: SwitchSettings | None = None,
        random: Random | None = None,
        draws: Random | None = None,
    ) -> None:
        self.name = name
        self.draws = draws
        self.settings = SwitchSettings() if settings is None else settings
        self.ports: list[SwitchPort] = []
        self.table = AddressTable(self.settings.addresses)
        self.buffer = Buffer(self.settings)
        self.stranded = 0
        self._turn = -1
        self.on_counted: list[OnCounted] = []
        self._own: set[bytes] = set()
        self._random = random
        self._classifier = Classifier(self.settings.priorities)
        self._pausing = frozenset(self.settings.pausing)
        marking = self.settings.marking
        self._arriving = {priority: m for priority, m in marking.items() if not m.departing}
        self._departing = {priority: m for priority, m in marking.items() if m.departing}
        if random is None and any(m.by_chance for m in marking.values()):
            raise FabricError(f"{name}: marks are left to chance, and no Random is given for it")

    def add_port(self, mac: bytes, link: RatedLink, *, in_spanning_tree: bool = True) -> SwitchPort:
        """Add a port with its own MAC address at the end of a link.

        If links form a loop, some ports must not be in the spanning tree: ``Network`` ensures that.
        """
        if self.settings.pausing and link.rate is None:
            raise FabricError(f"{self.name}: pauses count in bit times, and the link has no rate")
        port = SwitchPort(self, len(self.ports), mac, link, in_spanning_tree=in_spanning_tree)
        self._append(port)
        return port

    def _append(self, port: SwitchPort) -> None:
        self.ports.append(port)
        self._own.add(port.mac)
        self.buffer.add_port()
        self._clear_routes()

    def give(self, addresses: Mapping[bytes, Iterable[int]]) -> None:
        """Add static entries to the address table. Several ports are equal paths."""
        for mac, ports in addresses.items():
            self.table.give(mac, ports)
        self._clear_routes()

    def route(self, ingress: SwitchPort, key: bytes) -> Route:
        """Find the route of frames with this key from this ingress port; learn their sender."""
        if len(key) < Ethernet.SIZE or self._is_local(key[:6]):
            return _NOWHERE
        if ingress.in_spanning_tree and self.table.learn(key[6:12], ingress.number):
            self._clear_routes()
        traits = self._classifier.read(key)
        traffic_class = TrafficClass(traits.priority, ingress.number, traits.markable)
        given = self.table.given(key[:6])
        if not given:
            return Route(tuple(self._along_tree(ingress, key[:6])), traffic_class)
        # A nearer switch would not send the frame here: never send it back to one of them.
        if ingress.number in given:
            return Route((), traffic_class)
        if self.settings.balancing != "flow" and len(given) > 1:
            return Route(
                tuple(self.ports[number] for number in given), traffic_class, is_choice=True
            )
        return Route((self.ports[chosen(given, traits.tuple, self.settings.seed)],), traffic_class)

    def balance(self, ports: tuple[SwitchPort, ...]) -> tuple[SwitchPort, ...]:
        """Choose one of several equal paths for one frame: in turn, or the shortest queue."""
        self._turn += 1
        first = self._turn % len(ports)
        if self.settings.balancing == "packet":
            return ports[first : first + 1]
        turned = ports[first:] + ports[:first]
        return (min(turned, key=lambda port: sum(port.egress.bytes)),)

    def _is_local(self, mac: bytes) -> bool:
        """Whether frames to an address are consumed or dropped, not forwarded."""
        return mac in self._own or (mac[:5] == RESERVED and mac[5] < 0x10)

    def _along_tree(self, ingress: SwitchPort, mac: bytes) -> Iterator[SwitchPort]:
        """Egress ports of a frame to an address without a static entry."""
        learnt = self.table.learnt(mac)
        for port in self.ports if ingress.in_spanning_tree else ():
            if port is not ingress and port.in_spanning_tree and learnt in (None, port.number):
                yield port

    def _clear_routes(self) -> None:
        for port in self.ports:
            port.clear_routes()

    def forward(
        self, frame: Envelope, traffic_class: TrafficClass, port: SwitchPort, now: int
    ) -> None:
        """Queue a frame at an egress port, if it fits."""
        priority, ingress, markable = traffic_class
        egress, buffer = port.egress, self.buffer
        queued, size = egress.bytes[priority], len(frame.data)
        if not buffer.take(size, traffic_class, queued):
            port.drops[priority] += 1
            self._pause_overfull(priority, ingress, now)
            self._report(
                frame if priority in self._pausing else self._last_place(frame, traffic_class, port)
            )
            return
        if markable and priority in self._arriving:
            frame = self._marked(frame, port, priority, self._arriving[priority], queued)
        busy = now < egress.free_at and not egress.stopped
        egress.put(frame, traffic_class, size)
        if priority in self._pausing and buffer.overfull(ingress, priority):
            self.ports[ingress].pause(priority, now)
            self._report(frame)
        if not busy:  # else its timer calls it when the wire is free
            port.wake()

    def _last_place(
        self, frame: Envelope, traffic_class: TrafficClass, port: SwitchPort
    ) -> Envelope:
        """Decide whose frame gets the last slot in a full queue. Return the lost frame."""
        priority, size = traffic_class.priority, len(frame.data)
        last = port.egress.last(priority)
        if port.arbiter is None or last is None or last[2] != size:
            return frame
        port.contested |= 1 << priority
        holder = last[1].ingress
        if holder in (OWN, traffic_class.ingress) or not port.arbiter.prefers(
            traffic_class.ingress, holder
        ):
            return frame
        queued = port.egress.bytes[priority] - size
        if traffic_class.markable and priority in self._arriving:
            frame = self._marked(frame, port, priority, self._arriving[priority], queued)
        port.egress.replace_last((frame, traffic_class, size))
        self.buffer.release(size, priority, holder)
        self.buffer.take(size, traffic_class, 0)
        return last[0]

    def _pause_overfull(self, priority: int, ingress: int, now: int) -> None:
        """Pause the peer whose frame did not fit, if frames of it are queued.

        Without queued frames, no departure would resume it.
        """
        if priority in self._pausing and not self.buffer.drained(ingress, priority):
            self.ports[ingress].pause(priority, now)

    def release(self, item: Queued[Envelope], port: SwitchPort, now: int) -> Envelope:
        """Free the buffer of a frame that leaves by a port, and resume a paused peer."""
        frame, traffic_class, size = item
        priority, number, markable = traffic_class
        self.buffer.release(size, priority, number)
        if port.contested and port.contested >> priority & 1:
            self._settle(port, priority)
        if priority in self._pausing:
            self._resume_if_drained(self.ports[number], priority, now)
        if markable and priority in self._departing:
            marking, left = self._departing[priority], port.egress.bytes[priority]
            return self._marked(frame, port, priority, marking, left)
        return frame

    def _settle(self, port: SwitchPort, priority: int) -> None:
        """Record whose frame kept the last slot, now that the queue has room again."""
        port.contested &= ~(1 << priority)
        last = port.egress.last(priority)
        if port.arbiter is not None and last is not None:
            port.arbiter.keep(last[1].ingress)

    def _resume_if_drained(self, ingress: SwitchPort, priority: int, now: int) -> None:
        """Resume a paused peer, if there is room again."""
        if priority in ingress.paused_priorities and self.buffer.drained(ingress.number, priority):
            ingress.resume(priority, now)

    def _marked(
        self, frame: Envelope, port: SwitchPort, priority: int, marking: Marking, size: int
    ) -> Envelope:
        """Return the frame, with an ECN mark if required at a queue of ``size`` bytes."""
        if not marking.marks(size, self._random):
            return frame
        port.marks[priority] += 1
        frame = frame.altered(marked(frame.data))
        self._report(frame)
        return frame

    def drop_unroutable(self, frame: Envelope) -> None:
        """Drop and count a frame that has no route."""
        self.stranded += 1
        self._report(frame)

    def _report(self, frame: Envelope) -> None:
        for report in self.on_counted:
            report(frame)
