"""A host and a peer that follows no rule.

The victim has a queue pair of each type with work under way. Frames to it are made of numbers that
mean something to it, or nearly so, and are sealed; some are then damaged, sealed again or not.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, Protocol, TypeVar

from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib.encapsulation import headers_to
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.memory.fast_reg import FastRegistration, register_pages
from rdmawire.memory.key import Access
from rdmawire.memory.mw import Bind, bind_window
from rdmawire.memory.region import Region
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.srq import XRCReceiver
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire import management, roce
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, BTH, DETH, FETH, IETH, RETH, XRCETH, AtomicETH
from rdmawire.wire.opcode import SHAPES, Service
from rdmawire.wire.packet import LAYOUTS, Packet
from tests.stateful.arena import Arena
from tests.stateful.connection import CAP

MTU: Final = 256
PORT: Final = 0xC000
SECRET: Final = b"SECRET!!"
OPEN: Final = 4096
"""Bytes of each region that peers may reach somehow."""


T = TypeVar("T")


class Draw(Protocol):
    """Hypothesis' choice."""

    def __call__(self, strategy: st.SearchStrategy[T], /) -> T: ...


class Victim(Host):
    """All that it has is secret, but for what its regions let peers read and what it sends."""

    def __init__(self, peer: Host, psn: int) -> None:
        super().__init__(2)
        self.peer = peer
        self.cq = self.nic.create_cq(1000)
        self.arena = Arena(self, 100_000, 1)
        self.arena.model[:] = SECRET * (len(self.arena.model) // len(SECRET))
        writable = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
        visible = Access.REMOTE_READ | Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT
        self.both = self.arena.area(OPEN, writable | visible | Access.MW_BIND)
        self.read_only = self.arena.area(OPEN, visible)
        self.write_only = self.arena.area(OPEN, writable)
        self.local = self.arena.area(20_000, Access.LOCAL_WRITE)
        self.source = self.arena.area(OPEN, 0)
        self.writable: list[tuple[int, int]] = []
        for area in (self.both, self.read_only, self.source):
            self.arena.poke(area.region.iova, bytes(range(256)) * (OPEN // 256))
        self.space.write(self.arena.memory.base, bytes(self.arena.model))
        for area in (self.both, self.write_only):
            self.writable.append((area.region.iova, OPEN))
        self.numbers = count(1)
        self.domain = self.nic.open_xrcd()
        receiver = XRCReceiver(self.domain, self.cq)
        self.srq = self.nic.create_srq(self.pd, 64, 4, receiver)
        self.qps = [self._qp(kind, psn) for kind in QPType if kind is not QPType.RAW_PACKET]
        self.keys = [area.region.rkey for area in (self.both, self.read_only, self.write_only)]
        self.keys += [self.local.region.rkey, self.source.region.rkey, *self._more_keys()]
        for qp in self.qps:
            self._work(qp)

    def _qp(self, kind: QPType, psn: int) -> QueuePair:
        domain = self.domain if kind is QPType.XRC_TGT else 0
        qp = self.nic.create_qp(kind, QPInit(self.pd, self.cq, self.cq, CAP, xrc_domain=domain))
        path = self.path_to(self.peer)
        attributes = ATTRIBUTES._replace(
            ah=path,
            dest_qp_num=qp.qp_num,
            sq_psn=psn,
            rq_psn=psn,
            path_mtu=management.MTU.MTU_256,
        )
        self.bring_up(qp, attributes)
        return qp

    def _more_keys(self) -> Iterator[int]:
        """A window and a fast region, over part of what is open: both may be invalidated."""
        window = self.nic.memory.alloc_mw(self.pd, 2)
        start = self.both.region.iova + 512
        bind = Bind(start, 512, Access.REMOTE_WRITE, self.qps[0].qp_num, self.pd, window.key + 1)
        yield bind_window(self.nic.memory.keys, window, self.both.region, bind)
        region = self.nic.memory.alloc_mr(self.pd, 1)
        page = start - start % 4096
        rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        fast = FastRegistration(region.key + 1, start, 256, rights, [page])
        register_pages(self.nic.memory.keys, self.space, region, fast)
        yield region.rkey

    def _work(self, qp: QueuePair) -> None:
        """Receives, and sends that wait for an answer."""
        for length in (600, 40, 0, 1000):
            self._receive(qp, length)
        for opcode, length in _SENDS if qp.service.sends else ():
            if opcode not in qp.service.verbs:
                continue
            sges = self._pieces(opcode, length)
            wr = SendWR(opcode, sges, next(self.numbers), remote_address=8, rkey=1, placement=1)
            if not qp.service.connected:
                wr = wr._replace(ah=self.path_to(self.peer), remote_qpn=qp.qp_num)
            self.nic.post_send(qp, [wr])

    def _pieces(self, opcode: SendOpcode, length: int) -> tuple[Sge, ...]:
        """Local memory of work, where it uses any."""
        if opcode is SendOpcode.FLUSH:
            return ()
        return self._sink(length) if opcode in _SINKS else self.source.take([length])

    def _receive(self, qp: QueuePair, length: int) -> None:
        recv = RecvWR(self._sink(length), next(self.numbers))
        if qp.service.receives:
            self.nic.post_recv(qp, [recv])
        elif not qp.service.sends:
            self.nic.post_srq_recv(self.srq, [recv])

    def _sink(self, length: int) -> tuple[Sge, ...]:
        """One or two ranges that a peer may write, with a gap after each."""
        second = length // 3 if length > 100 else 0
        sges = self.local.take([length - second, second] if second else [length], 8)
        self.writable += [(address, size) for address, size, _ in sges]
        return sges

    def check_memory(self) -> None:
        """Nothing was written except where a peer may write."""
        base = self.arena.memory.base
        found = bytearray(self.space.read(base, self.arena.memory.size))
        for address, length in self.writable:
            at = address - base
            found[at : at + length] = self.arena.model[at : at + length]
        assert found == self.arena.model


_SENDS: Final = (
    (SendOpcode.RDMA_READ, 40),
    (SendOpcode.SEND, 8),
    (SendOpcode.ATOMIC_FETCH_AND_ADD, 8),
    (SendOpcode.RDMA_READ, 600),
    (SendOpcode.RDMA_WRITE, 700),
    (SendOpcode.FLUSH, 0),
    (SendOpcode.ATOMIC_WRITE, 8),
)
_SINKS: Final = (SendOpcode.RDMA_READ, SendOpcode.ATOMIC_FETCH_AND_ADD)


class Attacker:
    """Draws frames for a victim."""

    def __init__(self, peer: Host, victim: Victim, draw: Draw) -> None:
        self.peer = peer
        self.victim = victim
        self.draw = draw
        regions = (victim.both, victim.read_only, victim.write_only, victim.local, victim.source)
        self.places = [place for area in regions for place in _ends(area.region)]

    def frame(self) -> bytes:
        """One frame: most are good but for what they ask."""
        frame = self.sealed()
        damage = self.draw(st.integers(0, 9))
        if damage == 0:
            return frame[: self.draw(st.integers(0, len(frame)))]
        if damage == 1:
            return self.draw(st.binary(max_size=200))
        if damage == 2:
            return self.flipped(frame)
        if damage == 3:
            return resealed(self.flipped(frame))
        return frame

    def flipped(self, frame: bytes) -> bytes:
        """With some bytes changed."""
        data = bytearray(frame)
        places = st.integers(0, min(len(frame), 90) - 1)
        for place in self.draw(st.lists(places, min_size=1, max_size=3)):
            data[place] = self.draw(st.integers(0, 255))
        return bytes(data)

    def sealed(self) -> bytes:
        """A frame as the standard has it, to one of the queue pairs."""
        draw, qp = self.draw, self.draw(st.sampled_from(self.victim.qps))
        opcode = draw(st.sampled_from(_OPCODES[qp.type])) if draw(_MOSTLY) else draw(_ANY_OPCODE)
        extended = tuple(self.header(table) for table in LAYOUTS[opcode].headers)
        payload = bytes(self.length(extended))
        bth = BTH(
            opcode=opcode,
            se=draw(st.integers(0, 1)),
            padcnt=-len(payload) % 4,
            pkey=0xFFFF,
            destqp=qp.qp_num,
            ackreq=draw(st.integers(0, 1)),
            psn=self.psn(qp, response=SHAPES[opcode].response),
        )
        path = self.peer.path_to(self.victim)
        headers = headers_to(path, self.peer.mac, PORT)
        packet = Packet(bth, extended, payload, bytes(bth.padcnt))
        return roce.Frame(headers, packet).seal().build()

    def psn(self, qp: QueuePair, *, response: bool) -> int:
        """The number that is expected, or one near it."""
        expected = qp.sq.unacked_psn if response else qp.inbound.epsn
        step = 0 if self.draw(_MOSTLY) else self.draw(st.sampled_from([-1, 1, 2, 3, -9, 1 << 23]))
        return (expected + step) % (1 << 24)

    def length(self, extended: Sequence[Header]) -> int:
        """Bytes of payload: what the RETH says, or what fits well or badly."""
        announced = next((h.dmalen for h in extended if isinstance(h, RETH)), MTU)
        likely = min(announced, MTU)
        return (
            likely if self.draw(_MOSTLY) else self.draw(st.sampled_from([0, 1, 8, 255, 256, 257]))
        )

    def header(self, table: type[Header]) -> Header:
        """An extended header that might be meant."""
        draw = self.draw
        if table is RETH:
            address, length = draw(st.sampled_from(self.places)), draw(_LENGTHS)
            return RETH(address + draw(_STEPS), self.key(), length)
        if table is AtomicETH:
            address = draw(st.sampled_from(self.places))
            return AtomicETH(address + draw(_STEPS), self.key(), 1, 0)
        make = _MAKERS.get(table)
        return table() if make is None else make(self, draw)

    def key(self) -> int:
        """One of the victim's keys, or another."""
        key = self.draw(st.sampled_from(self.victim.keys))
        return key if self.draw(_MOSTLY) else key + self.draw(st.sampled_from([1, 0x100, 0x200]))


_MOSTLY: Final = st.sampled_from([True, True, True, False])
_ANY_OPCODE: Final = st.sampled_from(tuple(SHAPES))
_STEPS: Final = st.sampled_from([0, 0, 0, 8, -8, 1, -1, 7])
_LENGTHS: Final = st.sampled_from(
    [0, 1, 8, 255, 256, 257, 700, OPEN, OPEN + 1, 1 << 31, 0xFFFFFFFF]
)
_WIRE: Final = {
    QPType.RC: Service.RC,
    QPType.UC: Service.UC,
    QPType.UD: Service.UD,
    QPType.XRC_INI: Service.XRC,
    QPType.XRC_TGT: Service.XRC,
}
_OPCODES: Final = {
    kind: tuple(opcode for opcode in SHAPES if opcode >> 5 == service)
    for kind, service in _WIRE.items()
}
_MAKERS: Final[dict[type[Header], Callable[["Attacker", Draw], Header]]] = {
    AETH: lambda _, draw: AETH(
        ack=0 if draw(_MOSTLY) else draw(st.integers(0, 3)),
        value=draw(st.integers(0, 31)),
        msn=draw(st.integers(0, 9)),
    ),
    DETH: lambda _, draw: DETH(qkey=draw(st.sampled_from([0x11, 0x12])), srcqp=9),
    IETH: lambda self, _: IETH(self.key()),
    FETH: lambda _, draw: FETH(sel=draw(st.integers(0, 3)), plt=draw(st.integers(0, 3))),
    XRCETH: lambda self, draw: XRCETH(xrcsrq=self.victim.srq.number + (0 if draw(_MOSTLY) else 1)),
}


def _ends(region: Region) -> tuple[int, int, int]:
    """Where a region begins, where its last bytes are, and where it is over."""
    return region.iova, region.end - 8, region.end


def resealed(frame: bytes) -> bytes:
    """A damaged frame with lengths, checksums and ICRC that fit, where it has a place for them."""
    try:
        return roce.parse(frame).seal().build()
    except WireError:
        return frame
