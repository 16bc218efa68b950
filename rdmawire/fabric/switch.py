"""Switches: frames come in by one port, wait in a queue of another, and go out by it.

A switch stores frames and forwards them, by address on one level: it routes nothing. Each of its
ports is a port of the world; what they share is here. A frame's way and priority are worked out
once for each flow and kept, until the table of addresses changes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Final, NamedTuple

from rdmawire.fabric.buffer import Buffer
from rdmawire.fabric.egress import OWN, Egress, Lane, Queued
from rdmawire.fabric.flow import MOST_KEYS, Classifier, key_of, marked
from rdmawire.fabric.forwarding import AddressTable, chosen
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.line import QUANTUM, duration
from rdmawire.fabric.mac import Paced
from rdmawire.fabric.pause import MOST_QUANTA, pfc_frame, quanta_of
from rdmawire.fabric.refusal import FabricError
from rdmawire.fabric.settings import Marking, Settings
from rdmawire.wire.inet import Ethernet, EtherType

RESERVED: Final = b"\x01\x80\xc2\x00\x00"
"""How addresses begin that no switch forwards, if the last octet is below 0x10. 802.1Q, 8.6.3."""


Counted = Callable[[Envelope], object]
"""Is told of a frame for which something was counted."""


class Way(NamedTuple):
    """Where the frames of a flow go, and what they are."""

    ports: "tuple[SwitchPort, ...]"
    lane: Lane


class Arbiter:
    """Decides which ingress port's frame gets the last place in one full queue.

    If the first frame always got it, hosts whose frames arrive at the same instant would be served
    in a fixed order, and of hosts with the same rate the one that is a little earlier would get
    everything (S. Floyd and V. Jacobson, On Traffic Phase Effects in Packet-Switched Gateways,
    1992). So the port that had it longest ago gets it; ``random`` breaks ties, as at the beginning.
    """

    __slots__ = ("_kept", "_random", "_turn")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kept: dict[int, int] = {}
        self._turn = 0

    def prefers(self, port: int, other: int) -> bool:
        """Whether a frame from ``port`` takes the last place from one that came by ``other``."""
        mine, others = self._kept.get(port, 0), self._kept.get(other, 0)
        return mine < others or (mine == others and bool(self._random.getrandbits(1)))

    def keep(self, port: int) -> None:
        """Record that a frame from this port had the last place when the queue had room again."""
        self._turn += 1
        self._kept[port] = self._turn


class SwitchPort:
    """One port of a switch.

    ``drops`` and ``marks`` count frames by priority: those to leave here for which there was no
    room, and those that were marked. ``stops`` counts pauses that were asked for here; ``told`` are
    the priorities that the peer was told to stop. ``arbiter`` decides whose frame has the last
    place in a full queue; ``contested`` has a bit for each priority whose last place is
    contested. One that ``spans`` is part of the tree that frames take of whose
    address nobody knows the place: all ports are, but where links make loops.
    """

    __slots__ = (
        *("_refresh", "_ways", "arbiter", "contested", "drops", "egress", "mac", "marks"),
        *("number", "spans", "stops", "switch", "told", "wake"),
    )

    def __init__(
        self, switch: "Switch", number: int, mac: bytes, link: Paced, *, spans: bool
    ) -> None:
        self.switch = switch
        self.spans = spans
        self.number = number
        self.mac = mac
        self.egress = Egress[Envelope](link.rate, switch.settings.scheduling)
        self.arbiter = None if switch.draws is None else Arbiter(switch.draws)
        self.wake: Callable[[], None] = _nobody
        self.drops: Counter[int] = Counter()
        self.marks: Counter[int] = Counter()
        self.stops: Counter[int] = Counter()
        self._ways: dict[bytes, Way] = {}
        self.told: set[int] = set()
        self.contested = 0
        self._refresh = 0

    def receive(self, frame: Envelope, now: int) -> None:
        """A frame comes in: MAC control is for this port, all else goes on."""
        key = key_of(frame.data)
        way = self._ways.get(key)
        if way is None:
            if key[12:14] == _MAC_CONTROL:
                self._heed(frame, now)
                return
            way = self._find(key)
        if not way.ports:
            self.switch.strand(frame)
        for port in way.ports:
            self.switch.pass_on(frame, way.lane, port, now)

    def _heed(self, frame: Envelope, now: int) -> None:
        """Rest as a pause says; other MAC control goes nowhere. IEEE 802.3, 31."""
        quanta = quanta_of(frame.data)
        if quanta is None:
            self.switch.strand(frame)
        else:
            self.egress.pause(quanta, now)
            self.wake()

    def _find(self, key: bytes) -> Way:
        if len(self._ways) >= MOST_KEYS:
            self._ways.clear()
        way = self.switch.way(self, key)
        self._ways[key] = way
        return way

    def forget(self) -> None:
        """The table of addresses has changed."""
        self._ways.clear()

    def transmit(self, now: int) -> list[Envelope]:
        """The next frame, if the wire is free and one may go."""
        item = self.egress.take(now)
        if item is None:
            return []
        return [item[0] if item[1].ingress == OWN else self.switch.release(item, self, now)]

    def next_timer(self) -> int | None:
        """When the wire is free for what waits, or a pause is to be asked for again."""
        due = self.egress.next_time()
        if self.told and (due is None or self._refresh < due):
            return self._refresh
        return due

    def handle_timer(self, now: int) -> None:
        """Ask again for the pauses that are still wanted."""
        if self.told and self._refresh <= now:
            for priority in sorted(self.told):
                self._tell(priority, MOST_QUANTA, now)

    def stop(self, priority: int, now: int) -> None:
        """Have the peer stop a priority, if it was not told."""
        if priority not in self.told:
            self.told.add(priority)
            self.stops[priority] += 1
            self._tell(priority, MOST_QUANTA, now)

    def go_on(self, priority: int, now: int) -> None:
        """Have the peer go on, if it was told to stop."""
        if priority in self.told:
            self.told.remove(priority)
            self._tell(priority, 0, now)

    def _tell(self, priority: int, quanta: int, now: int) -> None:
        self._refresh = now + duration(MOST_QUANTA * QUANTUM, self.egress.rate) // 2
        frame = pfc_frame(self.mac, priority, quanta)
        self.egress.put_control(Envelope(frame), len(frame))
        self.wake()


_NOWHERE: Final = Way((), Lane())
_MAC_CONTROL: Final = EtherType.MAC_CONTROL.to_bytes(2, "big")


def _nobody() -> None:
    """Nobody waits for the port yet."""


class Switch:
    """A switch. ``random`` decides about marks where ``settings`` leave them to chance.

    With ``draws``, a source of randomness, ports get equal shares of a full queue
    (:class:`Arbiter`); without it the frames that arrive first are queued.

    A frame whose address was given takes one of the ports that were given for it. Any other goes
    along the tree of ports that span, to the port at which its address was heard or else to all,
    if it came in by one of them: so no frame goes round, however switches are joined.

    ``stranded`` counts frames that no port leads on: runts, MAC control, what is for the switch
    itself, and what would have to go back; ports count all else. ``on_counted`` are told of each
    frame for which a switch or one of its ports counted a drop, a mark or a stop, or that is
    stranded.
    """

    def __init__(
        self,
        name: str = "switch",
        settings: Settings | None = None,
        random: Random | None = None,
        draws: Random | None = None,
    ) -> None:
        self.name = name
        self.draws = draws
        self.settings = Settings() if settings is None else settings
        self.ports: list[SwitchPort] = []
        self.table = AddressTable(self.settings.addresses)
        self.buffer = Buffer(self.settings)
        self.stranded = 0
        self.on_counted: list[Counted] = []
        self._own: set[bytes] = set()
        self._random = random
        self._classifier = Classifier(self.settings.priorities)
        self._pausing = frozenset(self.settings.pausing)
        marking = self.settings.marking
        self._arriving = {priority: m for priority, m in marking.items() if not m.departing}
        self._departing = {priority: m for priority, m in marking.items() if m.departing}
        if random is None and any(m.by_chance for m in marking.values()):
            raise FabricError(f"{name}: marks are left to chance, and no Random is given for it")

    def add_port(self, mac: bytes, link: Paced, *, spans: bool = True) -> SwitchPort:
        """One more port, with an address of its own, at the end of a link.

        Where links make a loop, some of its ports must not span: ``Network`` sees to that.
        """
        if self.settings.pausing and link.rate is None:
            raise FabricError(f"{self.name}: pauses count in bit times, and the link has no rate")
        port = SwitchPort(self, len(self.ports), mac, link, spans=spans)
        self.ports.append(port)
        self._own.add(mac)
        self.buffer.add_port()
        self._forget()
        return port

    def give(self, addresses: Mapping[bytes, Iterable[int]]) -> None:
        """Say behind which ports addresses are. Several ports are equal paths."""
        for mac, ports in addresses.items():
            self.table.give(mac, ports)
        self._forget()

    def way(self, ingress: SwitchPort, key: bytes) -> Way:
        """Where frames with this key go that come in by this port; who sent them is learnt."""
        if len(key) < Ethernet.SIZE or self._stays(key[:6]):
            return _NOWHERE
        if ingress.spans and self.table.learn(key[6:12], ingress.number):
            self._forget()
        traits = self._classifier.read(key)
        lane = Lane(traits.priority, ingress.number, traits.markable)
        given = self.table.given(key[:6])
        if not given:
            return Way(tuple(self._along_tree(ingress, key[:6])), lane)
        # Who is nearer would not send it here: it goes back to none of them.
        port = self.ports[chosen(given, traits.tuple, self.settings.seed)]
        return Way(() if ingress.number in given else (port,), lane)

    def _stays(self, mac: bytes) -> bool:
        """Whether what is for an address goes no further."""
        return mac in self._own or (mac[:5] == RESERVED and mac[5] < 0x10)

    def _along_tree(self, ingress: SwitchPort, mac: bytes) -> Iterator[SwitchPort]:
        """The ports that a frame takes whose address was not given."""
        learnt = self.table.learnt(mac)
        for port in self.ports if ingress.spans else ():
            if port is not ingress and port.spans and learnt in (None, port.number):
                yield port

    def _forget(self) -> None:
        for port in self.ports:
            port.forget()

    def pass_on(self, frame: Envelope, lane: Lane, port: SwitchPort, now: int) -> None:
        """Put a frame into a queue of the port that it leaves by, if there is room."""
        priority, ingress, markable = lane
        egress, buffer = port.egress, self.buffer
        queued, size = egress.octets[priority], len(frame.data)
        if not buffer.take(size, lane, queued):
            port.drops[priority] += 1
            self._stop_overfull(priority, ingress, now)
            self._tell(frame if priority in self._pausing else self._last_place(frame, lane, port))
            return
        if markable and priority in self._arriving:
            frame = self._marked(frame, port, priority, self._arriving[priority], queued)
        busy = now < egress.free_at and not egress.stopped
        egress.put(frame, lane, size)
        if priority in self._pausing and buffer.overfull(ingress, priority):
            self.ports[ingress].stop(priority, now)
            self._tell(frame)
        if not busy:  # else its timer has it come back when the wire is free
            port.wake()

    def _last_place(self, frame: Envelope, lane: Lane, port: SwitchPort) -> Envelope:
        """Give a frame the last place in a full queue, or not. Return the frame that is lost."""
        priority, size = lane.priority, len(frame.data)
        last = port.egress.last(priority)
        if port.arbiter is None or last is None or last[2] != size:
            return frame
        port.contested |= 1 << priority
        holder = last[1].ingress
        if holder in (OWN, lane.ingress) or not port.arbiter.prefers(lane.ingress, holder):
            return frame
        queued = port.egress.octets[priority] - size
        if lane.markable and priority in self._arriving:
            frame = self._marked(frame, port, priority, self._arriving[priority], queued)
        port.egress.replace_last((frame, lane, size))
        self.buffer.release(size, last[1])
        self.buffer.take(size, lane, 0)
        return last[0]

    def _stop_overfull(self, priority: int, ingress: int, now: int) -> None:
        """Have who sent a frame for which there was no room stop until there is room again.

        Where nothing is to leave that it brought in, nobody would tell it to go on.
        """
        if priority in self._pausing and not self.buffer.drained(ingress, priority):
            self.ports[ingress].stop(priority, now)

    def release(self, item: Queued[Envelope], port: SwitchPort, now: int) -> Envelope:
        """A frame leaves by a port: there is room again, and who had to stop may go on."""
        frame, lane, size = item
        priority, number, markable = lane
        self.buffer.release(size, lane)
        if port.contested >> priority & 1:
            self._settle(port, priority)
        if priority in self._pausing:
            self._let_go_on(self.ports[number], priority, now)
        if markable and priority in self._departing:
            marking, left = self._departing[priority], port.egress.octets[priority]
            return self._marked(frame, port, priority, marking, left)
        return frame

    def _settle(self, port: SwitchPort, priority: int) -> None:
        """Record whose frame kept the last place, now that the queue has room again."""
        port.contested &= ~(1 << priority)
        last = port.egress.last(priority)
        if port.arbiter is not None and last is not None:
            port.arbiter.keep(last[1].ingress)

    def _let_go_on(self, ingress: SwitchPort, priority: int, now: int) -> None:
        """Take back what a peer was told, if there is room again."""
        if priority in ingress.told and self.buffer.drained(ingress.number, priority):
            ingress.go_on(priority, now)

    def _marked(
        self, frame: Envelope, port: SwitchPort, priority: int, marking: Marking, octets: int
    ) -> Envelope:
        """The frame, with a mark if that is what such a queue means."""
        if not marking.marks(octets, self._random):
            return frame
        port.marks[priority] += 1
        frame = frame.altered(marked(frame.data))
        self._tell(frame)
        return frame

    def strand(self, frame: Envelope) -> None:
        """No port leads on."""
        self.stranded += 1
        self._tell(frame)

    def _tell(self, frame: Envelope) -> None:
        for told in self.on_counted:
            told(frame)
