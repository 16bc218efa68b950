"""Random messages on unreliable connections and datagrams, three hosts, whatever the link does.

Without faults the model is exact. Otherwise messages may be lost, come twice or overtake one
another; but each that a receive reports was sent, and is complete; receives are taken in order,
and memory holds what some WRITE put there, or what was there before.
"""

from collections import deque
from itertools import cycle
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rdmawire.units import us
from rdmawire.verbs.ah import is_ipv4, mapped
from rdmawire.verbs.async_event import CommunicationEstablished
from rdmawire.verbs.enums import QPState, QPType, WCFlags, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.qp_attr import QPAttributes
from rdmawire.verbs.wr import VERBS, RecvWR, SendFlags, SendOpcode, SendWR, Sge
from rdmawire.wire.management import MTU
from tests.stateful.connection import CAP, PATIENCE, PATIENT, Machine, connect, lan, place
from tests.stateful.flow import INLINE, NUMBERS, Place
from tests.stateful.strategies import (
    CUTS,
    FLAGS,
    LENGTHS,
    LINK_FAULTS,
    LONGEST,
    MTUS,
    NO_FAULTS,
    NUMBERS_32,
    PSNS,
    SPOTS,
    Length,
    LinkFaults,
    Spot,
    cut,
)

ENDS = st.integers(0, 2)
IMM = st.none() | NUMBERS_32
GAP = 5


class Sent(NamedTuple):
    """A message, and what its receive should report; ``source`` is the sender's GID."""

    source: bytes
    opcode: WCOpcode
    length: int
    data: bytes
    imm: int | None


class End:
    """A place, what was sent to it since the last rest, and the receives that wait there."""

    def __init__(self, of: Place, peer: Machine, mtu: int) -> None:
        self.place = of
        self.peer = peer
        self.done: list[tuple[int, WCStatus]] = []
        self.coming: list[Sent] = []
        self.receives: deque[RecvWR] = deque()
        self.written: list[bytes] = []
        self.slots: deque[tuple[Sge, ...]] = deque()
        size = self.grh + LONGEST.of(mtu)
        while of.inbox.left > size + 2 * GAP and len(self.slots) < CAP.max_recv_wr:
            self.slots.append(of.inbox.take([size // 3, size - size // 3], GAP))

    @property
    def gid(self) -> bytes:
        return self.place.host.gid

    @property
    def grh(self) -> int:
        return self.place.qp.service.grh

    def provide(self, receives: int) -> None:
        """So many receives at least, posted where no other is."""
        while len(self.receives) < receives:
            recv = RecvWR(self.slots.popleft(), next(NUMBERS))
            self.place.host.nic.post_recv(self.place.qp, [recv])
            self.receives.append(recv)

    def take(self) -> RecvWR:
        """The next receive is used; another may come where it was."""
        recv = self.receives.popleft()
        self.slots.append(recv.sges)
        return recv

    def sender(self, grh: bytes) -> bytes:
        """Who sent: the peer, or whom the header before a datagram names. IBA A17.4.4."""
        if not self.grh:
            return self.peer.gid
        return mapped(grh[32:36]) if is_ipv4(self.gid) else grh[8:24]


class Unreliable(RuleBasedStateMachine):
    """Three hosts; each has a queue pair for datagrams, and a connection to the next host."""

    @initialize(mtu=MTUS, psns=st.tuples(PSNS, PSNS), first=st.integers(0, 1), ipv6=st.booleans())
    def start(self, mtu: MTU, psns: tuple[int, int], first: int, ipv6: bool) -> None:
        profiles = cycle(PATIENT[first:] + PATIENT[:first])
        self.simulator, self.link, self.machines = lan(3, profiles, ipv6=ipv6, latency=us(1))
        attributes = PATIENCE._replace(path_mtu=mtu)
        self.mtu = 128 << mtu
        self.faults = NO_FAULTS
        self.connected = [end for n in range(3) for end in self._connect(n, psns, attributes)]
        self.datagrams = [End(place(host, QPType.UD, 20), host, self.mtu) for host in self.machines]
        for end in self.datagrams:
            end.place.host.bring_up(end.place.qp, attributes)
        self.ends = self.connected + self.datagrams

    def _connect(self, n: int, psns: tuple[int, int], attributes: QPAttributes) -> list[End]:
        here, there = self.machines[n], self.machines[(n + 1) % 3]
        one = End(place(here, QPType.UC, n), there, self.mtu)
        two = End(place(there, QPType.UC, n), here, self.mtu)
        connect(one.place, two.place, psns, attributes)
        return [one, two]

    def other(self, e: int) -> End:
        """The other end of a connection: they stand in pairs."""
        return self.connected[e ^ 1]

    # Posting.

    def source(self, end: End, size: int, cuts: list[float], spot: Spot) -> tuple[Sge, ...]:
        region = end.place.source.region
        pieces = []
        for length in cut(size, cuts):
            start = spot.of(region.iova, region.length - length)
            pieces.append(Sge(region.iova + start, length, region.lkey))
            spot = Spot((spot.page + 3) % 5, length % 19 - 9)
        return tuple(pieces)

    def post(self, end: End, wr: SendWR) -> None:
        """Post, inline where that is asked for and fits."""
        data = end.place.source.read(wr.sges)
        inline = wr.flags & INLINE and len(data) <= CAP.max_inline_data
        kept = {"sges": (), "inline": data} if inline else {"flags": wr.flags & ~INLINE}
        wr = wr._replace(wr_id=next(NUMBERS))._replace(**kept)
        unfit = SendFlags.FENCE
        if not VERBS[wr.opcode].takes_receive:
            unfit |= SendFlags.SOLICITED
        wr = wr._replace(flags=wr.flags & ~unfit)
        if end.place.qp.free_sends <= 1:  # or the queue would be full for ever
            wr = wr._replace(flags=wr.flags | SendFlags.SIGNALED)
        end.place.host.nic.post_send(end.place.qp, [wr])
        if wr.flags & SendFlags.SIGNALED:
            end.done.append((wr.wr_id, WCStatus.SUCCESS))

    @property
    def tries(self) -> int:
        """Receives for each message: it may come twice, or stop half way."""
        return 1 if self.faults.are_none else 2

    def room(self, end: End, to: End) -> None:
        """Come to rest first if there is no room for one message more."""
        slots = len(to.slots) + len(to.receives)
        if slots < self.tries * (len(to.coming) + 1) or not end.place.qp.free_sends:
            self.settle()

    def expect(self, to: End, message: Sent) -> None:
        """There are receives for a message before it comes."""
        to.coming.append(message)
        to.provide(self.tries * len(to.coming))

    @rule(e=st.integers(0, 5), length=LENGTHS, cuts=CUTS, spot=SPOTS, flags=FLAGS, imm=IMM)
    def send(
        self, e: int, length: Length, cuts: list[float], spot: Spot, flags: int, imm: int | None
    ) -> None:
        end, to = self.connected[e], self.other(e)
        self.room(end, to)
        sges = self.source(end, length.of(self.mtu), cuts, spot)
        self.message(end, to, SendWR(SendOpcode.SEND, sges, flags=flags), imm)

    def message(self, end: End, to: End, wr: SendWR, imm: int | None) -> None:
        """A SEND, with an immediate if there is one."""
        data = end.place.source.read(wr.sges)
        if imm is not None:
            wr = wr._replace(opcode=SendOpcode.SEND_WITH_IMM, imm_data=imm)
        self.expect(to, Sent(end.gid, WCOpcode.RECV, len(data) + to.grh, data, imm))
        self.post(end, wr)

    @rule(
        e=ENDS,
        to=ENDS,
        length=LENGTHS,
        cuts=CUTS,
        spot=SPOTS,
        flags=FLAGS,
        imm=IMM,
        stray=st.sampled_from([0, 0, 0, 1]),
    )
    def datagram(
        self,
        e: int,
        to: int,
        length: Length,
        cuts: list[float],
        spot: Spot,
        flags: int,
        imm: int | None,
        stray: int,
    ) -> None:
        """To any host, the sender's own too; a ``stray`` one has another Q_Key, and is dropped."""
        end, other = self.datagrams[e], self.datagrams[to]
        self.room(end, other)
        sges = self.source(end, min(length.of(self.mtu), self.mtu), cuts, spot)
        path = end.place.host.path_to(other.place.host)
        wr = SendWR(SendOpcode.SEND, sges, flags=flags, ah=path)
        wr = wr._replace(remote_qpn=other.place.qp.qp_num, remote_qkey=PATIENCE.qkey + stray)
        if stray:
            self.post(end, wr)
        else:
            self.message(end, other, wr, imm)

    @rule(
        e=st.integers(0, 5), length=LENGTHS, cuts=CUTS, spot=SPOTS, at=SPOTS, flags=FLAGS, imm=IMM
    )
    def write(
        self,
        e: int,
        length: Length,
        cuts: list[float],
        spot: Spot,
        at: Spot,
        flags: int,
        imm: int | None,
    ) -> None:
        end, to = self.connected[e], self.other(e)
        self.room(end, to)
        sges = self.source(end, length.of(self.mtu), cuts, spot)
        data = end.place.source.read(sges)
        region = to.place.target.region
        address = region.iova + at.of(region.iova, region.length - len(data))
        opcode = SendOpcode.RDMA_WRITE if imm is None else SendOpcode.RDMA_WRITE_WITH_IMM
        if imm is not None:
            receipt = WCOpcode.RECV_RDMA_WITH_IMM
            self.expect(to, Sent(end.gid, receipt, len(data), b"", imm))
        wr = SendWR(opcode, sges, flags=flags, remote_address=address, rkey=region.rkey)
        self.post(end, wr._replace(imm_data=imm or 0))
        self.change(to, address, data)

    def change(self, to: End, address: int, data: bytes) -> None:
        """The model has all that was ever in the target since the last rest."""
        region = to.place.target.region
        if not to.written:
            to.written.append(to.place.arena.peek(region.iova, region.length))
        to.place.arena.poke(address, data)
        to.written.append(to.place.arena.peek(region.iova, region.length))

    # Time.

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
        """Wait until all is at rest, and compare."""
        self.simulator.run()
        found = {host.gid: host.cq.poll(2000) for host in self.machines}
        for end in self.ends:
            mine = [done for done in found[end.gid] if done.qp_num == end.place.qp.qp_num]
            sends = [(d.wr_id, d.status) for d in mine if not d.opcode & WCOpcode.RECV]
            assert sends == end.done
            self.check_receives(end, [d for d in mine if d.opcode & WCOpcode.RECV])
            self.check_target(end)
            self.forget(end)
        self.check_events()

    def check_receives(self, end: End, found: list[WorkCompletion]) -> None:
        """Receives in order, each with a message that was sent; all of them, without faults."""
        told = [self.expected_receive(end, end.take(), done) for done in found]
        if self.faults.are_none:
            sources = {message.source for message in end.coming}
            assert len(told) == len(end.coming)
            for source in sources:
                wanted = [message for message in end.coming if message.source == source]
                assert [message for message in told if message.source == source] == wanted
            return
        assert all(message in end.coming for message in told)
        for recv in end.receives:  # a message that was lost half way may have begun there
            self.adopt(end, recv.sges)

    def expected_receive(self, end: End, recv: RecvWR, done: WorkCompletion) -> Sent:
        """What a completion and its receive say; the bytes after the message are unchanged."""
        assert (done.wr_id, done.status) == (recv.wr_id, WCStatus.SUCCESS)
        raw = end.place.inbox.found(recv.sges)
        length = 0 if done.opcode is WCOpcode.RECV_RDMA_WITH_IMM else done.byte_len
        changed = raw[:length] if self.faults.are_none else raw
        self.accept(end, recv.sges, changed)
        imm = done.imm_data if done.wc_flags & WCFlags.WITH_IMM else None
        data = raw[end.grh : length]
        return Sent(end.sender(raw), WCOpcode(done.opcode), done.byte_len, data, imm)

    def adopt(self, end: End, sges: tuple[Sge, ...]) -> None:
        """Let the model be as it is found."""
        self.accept(end, sges, end.place.inbox.found(sges))

    def accept(self, end: End, sges: tuple[Sge, ...], data: bytes) -> None:
        for address, length, _ in sges:
            end.place.arena.poke(address, data[:length])
            data = data[length:]

    def check_target(self, end: End) -> None:
        """Each byte is one that was there, or that a WRITE brought; the last, without faults."""
        region = end.place.target.region
        if end.written and not self.faults.are_none:
            found = end.place.host.space.read(region.iova, region.length)
            odd = [at for at, byte in enumerate(end.written[-1]) if byte != found[at]]
            for at in odd:
                assert any(data[at] == found[at] for data in end.written)
            end.place.arena.poke(region.iova, found)
        end.place.arena.check()

    def forget(self, end: End) -> None:
        """Begin anew; receives that nothing came for wait on."""
        assert end.place.qp.state is QPState.RTS
        assert not end.place.qp.sq.under_way
        end.done.clear()
        end.coming.clear()
        end.written.clear()

    def check_events(self) -> None:
        for host in self.machines:
            while event := host.nic.next_event():
                assert isinstance(event, CommunicationEstablished)

    def teardown(self) -> None:
        if hasattr(self, "ends"):
            self.settle()
