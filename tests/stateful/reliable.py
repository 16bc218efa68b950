"""Random work on reliable connections, beside the model of :mod:`tests.stateful.flow`.

Work is posted, time passes a little or none, and now and then all comes to rest: then memory,
guards and all, is the model's, and every completion has come once and in order.
"""

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.key import VARIANTS, Access
from rdmawire.memory.mw import Bind, MemoryWindow
from rdmawire.memory.page import PAGE_4K
from rdmawire.memory.region import Region
from rdmawire.units import us
from rdmawire.verbs.async_event import CommunicationEstablished
from rdmawire.verbs.enums import QPState, WCOpcode
from rdmawire.verbs.wr import ATOMIC_SIZE, BindMW, RegMR, SendOpcode, SendWR, Sge
from rdmawire.wire.management import MTU
from tests.stateful.connection import (
    CAP,
    PATIENCE,
    PATIENT,
    connect,
    extended,
    flows_between,
    lan,
    reliable,
)
from tests.stateful.flow import INLINE, Flow, Place, Way, found_receive
from tests.stateful.strategies import (
    CUTS,
    FLAGS,
    LENGTHS,
    LINK_FAULTS,
    LONGEST,
    MTUS,
    NO_FAULTS,
    NUMBERS_32,
    NUMBERS_64,
    PSNS,
    SPOTS,
    Length,
    LinkFaults,
    Spot,
    cut,
)

FLOWS = st.integers(0, 5)
WAYS = st.integers(0, 3)
GAPS = st.integers(0, 9)
RATES = st.sampled_from([None, 1_000_000_000, 100_000_000_000])
"""Bits a second: where frames take time, answers are half sent when something comes."""
IMM = st.none() | NUMBERS_32
SLACK = 100
REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
REMOTE |= Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT


class Layout(NamedTuple):
    """How many hosts are on the link, which of them are connected, and how."""

    hosts: int
    joined: tuple[tuple[int, int], ...]
    make: Callable[..., tuple[Place, Place]]


LAYOUTS = (
    Layout(2, ((0, 1),), reliable),
    Layout(3, ((0, 1), (1, 2), (2, 0)), reliable),
    Layout(3, ((0, 1), (0, 2)), extended),
)
"""Two hosts; three, each connected with both others; one that sends to two others by XRC.

With XRC the two others name no receives of their own.
"""

Kind = TypeVar("Kind", Region, MemoryWindow)


class Reliable(RuleBasedStateMachine):
    """Hosts, connections between some, and a flow for each direction."""

    @initialize(
        layout=st.sampled_from(LAYOUTS),
        mtu=MTUS,
        psns=st.tuples(PSNS, PSNS),
        depth=st.integers(1, 4),
        first=st.integers(0, 1),
        ipv6=st.booleans(),
        shared=st.booleans(),
        timer=st.sampled_from([1, 12, 20]),
        latency=st.sampled_from([0, us(1)]),
        rate=RATES,
    )
    def start(
        self,
        layout: Layout,
        mtu: MTU,
        psns: tuple[int, int],
        depth: int,
        first: int,
        ipv6: bool,
        shared: bool,
        timer: int,
        latency: int,
        rate: int | None,
    ) -> None:
        profiles = cycle(PATIENT[first:] + PATIENT[:first])
        self.simulator, self.link, self.machines = lan(
            layout.hosts, profiles, ipv6=ipv6, latency=latency, rate=rate
        )
        attributes = PATIENCE._replace(
            path_mtu=mtu, max_rd_atomic=depth, max_dest_rd_atomic=depth, min_rnr_timer=timer
        )
        self.mtu = 128 << mtu
        self.flows: list[Flow] = []
        for one, two in layout.joined:
            ends = layout.make(self.machines[one], self.machines[two], shared=shared)
            connect(*ends, psns, attributes)
            self.flows += flows_between(self.simulator, *ends)
        self.places = {flow.sender: None for flow in self.flows}
        self.places |= {flow.receiver: None for flow in self.flows}
        self.faults = NO_FAULTS
        self.spare: dict[Flow, list[Region | MemoryWindow]] = {flow: [] for flow in self.flows}

    # What is needed to post.

    @property
    def unit(self) -> int:
        """Bytes that the longest message takes up, with gaps between its pieces."""
        return LONGEST.of(self.mtu) + SLACK

    def flow(self, number: int) -> Flow:
        """One of the flows, with room to post in."""
        flow = self.flows[number % len(self.flows)]
        waiting = len(flow.messages) + 1
        crowded = not flow.receives and flow.receiver.inbox.left < waiting * self.unit
        full = not flow.sender.qp.free_sends or waiting > CAP.max_recv_wr
        if full or crowded or flow.sender.sink.left < self.unit:
            self.settle()
        return flow

    def source(self, flow: Flow, length: Length, cuts: list[float], spot: Spot) -> tuple[Sge, ...]:
        """Pieces to send from, anywhere in the sender's source, in any order."""
        region = flow.sender.source.region
        pieces = []
        for size in cut(length.of(self.mtu), cuts):
            start = spot.of(region.iova, region.length - size)
            pieces.append(Sge(region.iova + start, size, region.lkey))
            spot = Spot((spot.page + 3) % 5, size % 19 - 9)
        return tuple(pieces)

    def way(self, flow: Flow, number: int) -> Way:
        return flow.ways[number % len(flow.ways)]

    # Work.

    @rule(f=FLOWS, length=LENGTHS, cuts=CUTS, spot=SPOTS, flags=FLAGS, imm=IMM)
    def send(
        self, f: int, length: Length, cuts: list[float], spot: Spot, flags: int, imm: int | None
    ) -> None:
        flow = self.flow(f)
        flow.send(self.source(flow, length, cuts, spot), flags, imm)

    @rule(f=FLOWS, w=WAYS, length=LENGTHS, cuts=CUTS, spot=SPOTS, to=SPOTS, flags=FLAGS, imm=IMM)
    def write(
        self,
        f: int,
        w: int,
        length: Length,
        cuts: list[float],
        spot: Spot,
        to: Spot,
        flags: int,
        imm: int | None,
    ) -> None:
        flow = self.flow(f)
        way = self.way(flow, w)
        size = min(length.of(self.mtu), way.length)
        sges = self.source(flow, Length(0, size), cuts, spot)
        flow.write(sges, flags, way, to.of(way.memory, way.length - size), imm)

    @rule(f=FLOWS, w=WAYS, length=LENGTHS, cuts=CUTS, gap=GAPS, of=SPOTS, flags=FLAGS)
    def read(
        self, f: int, w: int, length: Length, cuts: list[float], gap: int, of: Spot, flags: int
    ) -> None:
        flow = self.flow(f)
        way = self.way(flow, w)
        size = min(length.of(self.mtu), way.length)
        sges = flow.sender.sink.take(cut(size, cuts), gap)
        flow.read(sges, flags, way, of.of(way.memory, way.length - size))

    def cell(self, way: Way, spot: Spot) -> int:
        """Where in a way eight aligned bytes begin near a spot."""
        at = spot.of(way.memory, way.length - ATOMIC_SIZE)
        return at - at % ATOMIC_SIZE

    @rule(f=FLOWS, w=WAYS, cuts=CUTS, gap=GAPS, of=SPOTS, flags=FLAGS, value=NUMBERS_64)
    def fetch_add(
        self, f: int, w: int, cuts: list[float], gap: int, of: Spot, flags: int, value: int
    ) -> None:
        flow = self.flow(f)
        way = self.way(flow, w)
        sges = flow.sender.sink.take(cut(ATOMIC_SIZE, cuts), gap)
        flow.fetch_add(sges, flags, way, self.cell(way, of), value)

    @rule(f=FLOWS, w=WAYS, of=SPOTS, flags=FLAGS, compare=st.none() | NUMBERS_64, swap=NUMBERS_64)
    def compare_swap(
        self, f: int, w: int, of: Spot, flags: int, compare: int | None, swap: int
    ) -> None:
        flow = self.flow(f)
        way = self.way(flow, w)
        sges = flow.sender.sink.take([ATOMIC_SIZE], 1)
        flow.compare_swap(sges, flags, way, self.cell(way, of), compare, swap)

    @rule(f=FLOWS, w=WAYS, cuts=CUTS, spot=SPOTS, of=SPOTS, flags=FLAGS)
    def atomic_write(
        self, f: int, w: int, cuts: list[float], spot: Spot, of: Spot, flags: int
    ) -> None:
        flow = self.flow(f)
        way = self.way(flow, w)
        sges = self.source(flow, Length(0, ATOMIC_SIZE), cuts, spot)
        flow.atomic_write(sges, flags, way, self.cell(way, of))

    @rule(f=FLOWS, w=WAYS, flags=FLAGS, placement=st.integers(1, 3), sel=st.integers(0, 1))
    def flush(self, f: int, w: int, flags: int, placement: int, sel: int) -> None:
        flow = self.flow(f)
        way = self.way(flow, w)
        flow.flush(flags, way, way.length // 3, way.length // 2, placement, sel)

    # Keys that come and go.

    def other_way(self, flow: Flow) -> Flow | None:
        """The flow by which the receiver can post work of its own."""
        return next((f for f in self.flows if f.sender is flow.receiver), None)

    def part(self, flow: Flow, spot: Spot, length: int) -> tuple[int, int]:
        """So many bytes of the receiver's target, from a multiple of eight on."""
        region = flow.receiver.target.region
        at = spot.of(region.iova, region.length - length)
        return region.iova + at - at % ATOMIC_SIZE, length

    @rule(f=FLOWS, spot=SPOTS, length=st.integers(8, 9000), zero=st.booleans(), flags=FLAGS)
    def bind(self, f: int, spot: Spot, length: int, zero: bool, flags: int) -> None:
        """The receiver binds a window to part of its target, and sends its key to the sender."""
        flow = self.flow(f)
        back = self.other_way(flow)
        if back is None:
            return
        self.settle()
        window = next(self.unused(flow, MemoryWindow), None)
        if window is None:
            window = flow.receiver.host.nic.memory.alloc_mw(flow.receiver.host.pd, 2)
        start, length = self.part(flow, spot, length)
        rkey = varied(window.key)
        access = REMOTE | (Access.ZERO_BASED if zero else 0)
        bound = BindMW(window, flow.receiver.target.region, Bind(start, length, access, rkey=rkey))
        back.post(SendWR(SendOpcode.BIND_MW, flags=flags & ~INLINE, bind=bound))
        self.settle()
        flow.ways.append(Way(window, rkey, 0 if zero else start, start, length))

    @rule(f=FLOWS, spot=SPOTS, length=st.integers(8, 9000), page=st.integers(0, 3), flags=FLAGS)
    def register(self, f: int, spot: Spot, length: int, page: int, flags: int) -> None:
        """The receiver registers pages of its target under a fast region's key."""
        flow = self.flow(f)
        back = self.other_way(flow)
        if back is None:
            return
        self.settle()
        region = next(self.unused(flow, Region), None)
        if region is None:
            region = flow.receiver.host.nic.memory.alloc_mr(flow.receiver.host.pd, 4)
        start, length = self.part(flow, spot, length)
        pages = range(start - start % PAGE_4K, start + length, PAGE_4K)
        iova = page * PAGE_4K + start % PAGE_4K
        rkey = varied(region.key)
        rights = REMOTE | Access.LOCAL_WRITE
        registration = FastRegistration(rkey, iova, length, rights, pages)
        reg = RegMR(region, registration)
        back.post(SendWR(SendOpcode.REG_MR, flags=flags & ~INLINE, reg=reg))
        self.settle()
        flow.ways.append(Way(region, rkey, iova, start, length))

    def unused(self, flow: Flow, kind: type[Kind]) -> Iterator[Kind]:
        """A window or region that was taken back, to be used again."""
        for grant in tuple(self.spare[flow]):
            if isinstance(grant, kind):
                self.spare[flow].remove(grant)
                yield grant

    @rule(f=FLOWS, w=WAYS, flags=FLAGS)
    def local_invalidate(self, f: int, w: int, flags: int) -> None:
        """The receiver takes a key back."""
        flow = self.flow(f)
        if len(flow.ways) == 1:
            return
        self.settle()
        way = flow.ways.pop(1 + w % (len(flow.ways) - 1))
        back = self.other_way(flow)
        assert back is not None
        wr = SendWR(SendOpcode.LOCAL_INV, flags=flags & ~INLINE, invalidate_rkey=way.rkey)
        back.post(wr)
        self.spare[flow].append(way.grant)

    @rule(f=FLOWS, w=WAYS, length=LENGTHS, cuts=CUTS, spot=SPOTS, flags=FLAGS)
    def send_invalidate(
        self, f: int, w: int, length: Length, cuts: list[float], spot: Spot, flags: int
    ) -> None:
        """The sender takes a key back that the receiver gave it."""
        flow = self.flow(f)
        if len(flow.ways) == 1:
            return
        way = flow.ways[1 + w % (len(flow.ways) - 1)]
        flow.send(self.source(flow, length, cuts, spot), flags, way=way)
        self.spare[flow].append(way.grant)

    # The other side, the link, and time.

    @rule(f=FLOWS, cuts=CUTS, gap=GAPS, more=st.integers(0, 9))
    def receive(self, f: int, cuts: list[float], gap: int, more: int) -> None:
        flow = self.flows[f % len(self.flows)]
        size = LONGEST.of(self.mtu) + more
        room = flow.receiver.inbox.left >= self.unit
        if room and len(flow.receives) < CAP.max_recv_wr:
            flow.post_receive(cut(size, cuts), gap)

    @rule(faults=LINK_FAULTS)
    def change_faults(self, faults: LinkFaults) -> None:
        self.settle()
        self.faults = faults
        faults.rule(self.link)

    @rule(time=st.sampled_from([0, us(1), us(3), us(700)]))
    def wait(self, time: int) -> None:
        self.simulator.run(self.simulator.now + time)

    @rule()
    def settle(self) -> None:
        """Give every message a receive, wait until all is at rest, and compare."""
        self.simulator.run(self.simulator.now + us(2))  # a peer without a receive gets an RNR NAK
        for flow in self.flows:
            flow.match()  # receives that are posted already leave no room for more
            while flow.messages:
                flow.post_receive([LONGEST.of(self.mtu)], 0)
        self.simulator.run()
        self.check_completions()
        for flow in self.flows:
            flow.check(strict=self.faults.are_none)
        for place in self.places:
            assert place.qp.state is QPState.RTS
            place.arena.check()
            place.sink.reset()
        self.check_events()

    def check_completions(self) -> None:
        """Everything completed that should, once and in order, and nothing else."""
        found: dict[tuple[int, int, bool], list[tuple[int, ...]]] = {}
        for host in self.machines:
            for done in host.cq.poll(2000):
                receipt = bool(done.opcode & WCOpcode.RECV)
                told = found_receive(done) if receipt else (done.wr_id, done.status, done.opcode)
                key = (host.gid[-1], done.qp_num, receipt)
                found.setdefault(key, []).append(told)
        assert found == self.expected()

    def expected(self) -> dict[tuple[int, int, bool], list[tuple[int, ...]]]:
        wanted: dict[tuple[int, int, bool], list[tuple[int, ...]]] = {}
        for flow in self.flows:
            for place, receipt, told in (
                (flow.sender, False, flow.done),
                (flow.receiver, True, flow.received),
            ):
                if told:
                    wanted[place.host.gid[-1], place.qp.qp_num, receipt] = list(told)
        return wanted

    def check_events(self) -> None:
        """No event was reported but COMM_EST."""
        for host in self.machines:
            while event := host.nic.next_event():
                assert isinstance(event, CommunicationEstablished)

    def teardown(self) -> None:
        if hasattr(self, "flows"):
            self.settle()


def varied(key: int) -> int:
    """The same index with the next variant."""
    return key - key % VARIANTS + (key + 1) % VARIANTS
