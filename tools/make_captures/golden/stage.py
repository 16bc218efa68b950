"""Plays a golden case: two adapters in a world of their own, and what went over their link."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from rdmawire.capture import LinkType
from rdmawire.fabric import Buffer, Envelope, Host, Link, Port, Simulator, pfc_frame
from rdmawire.ib import Nic, QPInit, QueuePair
from rdmawire.ib.encapsulation import headers_to
from rdmawire.memory import FastRegistration, register_pages
from rdmawire.verbs import (
    VERBS,
    Local,
    MigrationState,
    QPAttributes,
    QPAttrMask,
    QPCap,
    QPType,
    RecvWR,
    SendWR,
    Sge,
    SharedReceiveQueue,
    WorkCompletion,
    XRCReceiver,
    udp_source_port,
)
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from rdmawire.wire.serial import add
from tools.make_captures.golden.case import (
    ALTERNATES,
    CLIENT,
    LATENCY,
    OTHER,
    SERVER,
    XRC_SRQ,
    Action,
    Again,
    Case,
    End,
    Lose,
    Migrate,
    Pause,
    Raw,
    Rearm,
    Receive,
    Register,
    Say,
    Script,
    Work,
    text,
)

_CAP = QPCap(1 << 10, 1 << 15, 1, 1, 0)
_COMPLETIONS = 1 << 12
_MAX_RECEIVES = 1 << 10
_NOBODYS_KEY = 0x00BADBAD
_OTHER_TEXT = 165
"""What is sent begins otherwise than what memory holds, and like no EtherType."""
_SHARED = (QPType.XRC_TGT,)


class Sent(NamedTuple):
    """A frame that was put on the link, at this time (ns), by this end or by a script."""

    time: int
    who: str
    frame: bytes
    scripted: bool = False
    link_type: int = LinkType.ETHERNET


class Speaker:
    """An adapter that also says what it is told: those frames go first, and stand in ``said``."""

    def __init__(self, nic: Nic) -> None:
        self.nic = nic
        self.saying: list[bytes] = []
        self.said: deque[bytes] = deque()

    def receive(self, frame: bytes, now: int) -> None:
        self.nic.receive(frame, now)

    def transmit(self, now: int) -> list[bytes]:
        frames, self.saying = self.saying, []
        self.said.extend(frames)
        return frames + self.nic.transmit(now)

    def next_timer(self) -> int | None:
        return self.nic.next_timer()

    def handle_timer(self, now: int) -> None:
        self.nic.handle_timer(now)


class Party(Host):
    """An end with an adapter: what the case says that it has, and nothing else."""

    def __init__(self, end: End, peer: End, kind: QPType) -> None:
        super().__init__(place=end.place)
        self.end, self.peer, self.kind = end, peer, kind
        self.speaker = Speaker(self.nic)
        self.cq = self.nic.create_cq(_COMPLETIONS)
        self.region = self._reachable()
        self.fast = self.nic.memory.alloc_mr(self.pd, 1)
        self.nic.memory.choose_key(self.fast, end.fast.rkey)
        self.srq = self._shared_queue()
        self.qp = self._queue_pair()

    def _reachable(self) -> Buffer:
        """The memory that the peer may reach, by its address and key."""
        va, rkey, access, length = self.end.memory
        memory = self.space.allocate(length)
        memory.write(memory.base, text(length))
        region = self.nic.memory.reg_mr(self.pd, memory.base, length, access, iova=va)
        self.nic.memory.choose_key(region, rkey)
        return Buffer(memory, region)

    def _shared_queue(self) -> SharedReceiveQueue | None:
        extended = self.kind in _SHARED
        if not (extended or self.end.shared):
            return None
        receiver = XRCReceiver(self.nic.open_xrcd(), self.cq) if extended else None
        srq = self.nic.create_srq(self.pd, _MAX_RECEIVES, xrc=receiver)
        assert not extended or srq.number == XRC_SRQ
        return srq

    def _queue_pair(self) -> QueuePair:
        srq = None if self.kind in _SHARED else self.srq
        domain = self.srq.xrc.domain if self.srq is not None and self.srq.xrc is not None else 0
        init = QPInit(self.pd, self.cq, self.cq, _CAP, srq=srq, xrc_domain=domain)
        qp = self.nic.create_qp(self.kind, init, self.end.qpn)
        if not self.end.silent:
            self.bring_up(qp, self.end.attributes._replace(ah=self.end.path_to(self.peer)))
        if self.end.notifies:
            self.nic.notify_congestion(qp)
        return qp

    # What a case has it do. ``number`` is the action's place in the case.

    def work(self, action: Work, number: int) -> None:
        """Post send work, about local memory of its own."""
        verb = VERBS[action.do]
        data = text(action.bytes, _OTHER_TEXT + number)
        sges: tuple[Sge, ...] = ()
        if action.bytes and verb.local is not Local.NONE:
            source = self.filled(data) if verb.local is Local.SOURCE else self.buffer(len(data))
            sges = (source.sge(action.bytes),)
        self.nic.post_send(self.qp, (self._request(action, number, sges),))

    def _request(self, action: Work, number: int, sges: tuple[Sge, ...]) -> SendWR:
        there = self.peer.memory
        wr = SendWR(
            action.do, sges, number, action.flags,
            remote_address=there.va + action.offset,
            rkey=action.key or there.rkey,
            imm_data=action.imm_data,
            invalidate_rkey=action.invalidate_rkey,
            compare_add=action.compare_add,
            swap=action.swap,
            remote_srqn=XRC_SRQ,
            placement=action.placement,
            selectivity=action.selectivity,
            length=action.bytes,
        )  # fmt: skip
        if self.qp.service.connected:
            return wr
        qkey = action.key or self.peer.attributes.qkey
        return wr._replace(
            ah=self.end.path_to(self.peer), remote_qpn=self.peer.qpn, remote_qkey=qkey
        )

    def receive(self, action: Receive, number: int) -> None:
        """Post receives; a datagram's have room for the GRH."""
        size = action.bytes + self.qp.service.grh
        piece = self.buffer(max(size, 1)).sge(size)
        if action.broken:
            piece = piece._replace(lkey=_NOBODYS_KEY)
        wrs = [RecvWR((piece,) if size else (), number)] * action.times
        if self.srq is None:
            self.nic.post_recv(self.qp, wrs)
        else:
            self.nic.post_srq_recv(self.srq, wrs)

    def register(self, action: Register, _: int) -> None:
        """Fill the free region for fast registration with a page of its own."""
        va, _, access, length = self.end.fast
        page = self.space.allocate(length)
        wanted = FastRegistration(action.rkey, va, length, access, (page.base,))
        register_pages(self.nic.memory.keys, self.space, self.fast, wanted)

    def lose(self, _: Lose, __: int) -> None:
        """Unmap the memory that the peer may reach."""
        assert isinstance(self.region, Buffer)
        self.space.unmap(self.region.memory)

    def rearm(self, action: Rearm, _: int) -> None:
        """Load the alternate path."""
        here, there = ALTERNATES[action.who].gid, ALTERNATES[OTHER[action.who]].gid
        self.nic.gids = (*self.nic.gids, here)
        path = self.end.path_to(self.peer)._replace(sgid=here, dgid=there)
        timeout = self.end.attributes.timeout
        wanted = QPAttributes(alt_ah=path, alt_timeout=timeout, path_mig_state=MigrationState.REARM)
        mask = QPAttrMask.ALT_PATH | QPAttrMask.PATH_MIG_STATE
        self.nic.modify_qp(self.qp, wanted, mask)

    def migrate(self, _: Migrate, __: int) -> None:
        """Go over."""
        wanted = QPAttributes(path_mig_state=MigrationState.MIGRATED)
        self.nic.modify_qp(self.qp, wanted, QPAttrMask.PATH_MIG_STATE)

    def poll(self) -> list[WorkCompletion]:
        """All completions."""
        return self.cq.poll(_COMPLETIONS)


_DOES: Mapping[type, Callable[..., None]] = {
    Work: Party.work,
    Receive: Party.receive,
    Register: Party.register,
    Lose: Party.lose,
    Rearm: Party.rearm,
    Migrate: Party.migrate,
}


class Stage:
    """Both ends of a case on their link. ``stand_ins`` are ports in the place of an end.

    What such an end does is left to it. ``sent`` is all that was put on the link.
    """

    def __init__(self, case: Case, stand_ins: Mapping[str, Port] | None = None) -> None:
        self.case = case
        self.simulator = Simulator()
        self.link = Link(LATENCY, rate=case.rate, drop=case.lost, delay=case.late)
        self.sent: list[Sent] = []
        self.parties = {
            who: Party(end, case.ends[OTHER[who]], case.kind_of(who))
            for who, end in case.ends.items()
            if who not in (stand_ins or {})
        }
        ports: dict[str, Port] = {who: party.speaker for who, party in self.parties.items()}
        ports |= stand_ins or {}
        self.stations = {
            who: self.simulator.attach(ports[who], case.ends[who].place.mac, self.link)
            for who in (CLIENT, SERVER)
        }
        self.simulator.on_sent.append(self._note)
        self._appoint()

    def _note(self, frame: Envelope, now: int) -> None:
        macs = {end.place.mac: who for who, end in self.case.ends.items()}
        who = macs[frame.data[6:12]]
        said = self.parties[who].speaker.said if who in self.parties else deque[bytes]()
        if scripted := bool(said):
            said.popleft()
        self.sent.append(Sent(now, who, frame.data, scripted))

    def _appoint(self) -> None:
        for number, action in enumerate(self.case.does):
            if action.who in self.parties:
                self.simulator.call_at(action.at, partial(self._do, action, number))
        for say in self.case.says:
            if say.who in self.parties:
                self.simulator.call_at(say.at, partial(self._say, say))

    def _do(self, action: Action, number: int) -> None:
        _DOES[type(action)](self.parties[action.who], action, number)
        self.simulator.wake(self.stations[action.who])

    def _say(self, script: Script) -> None:
        party = self.parties[script.who]
        party.speaker.saying.append(_FRAMES[type(script)](self, script))
        self.simulator.wake(self.stations[script.who])

    def forged(self, say: Say) -> bytes:
        """The frame that this end's adapter would make of a packet."""
        party = self.parties[say.who]
        first = self.case.ends[CLIENT].attributes.sq_psn
        packet = Packet.make(
            say.opcode,
            *say.headers(party.peer.memory),
            payload=say.payload,
            psn=add(first, say.psn),
            destqp=party.peer.qpn,
            migreq=1,
            **say.bth,
        )
        path = party.end.path_to(party.peer)
        port = udp_source_port(path.flow_label, party.end.qpn, party.peer.qpn)
        return Frame(headers_to(path, party.mac, port), packet).seal().build()

    def again(self, again: Again) -> bytes:
        """The frame that had this number."""
        return self.sent[again.number - 1].frame

    def pause(self, pause: Pause) -> bytes:
        """What stops a priority of the peer's."""
        return pfc_frame(self.parties[pause.who].mac, pause.priority, pause.quanta)

    def raw(self, raw: Raw) -> bytes:
        """The frame itself."""
        return raw.frame

    def run(self) -> "Stage":
        """Let all happen that is to happen."""
        self.simulator.run()
        return self


_FRAMES: Mapping[type, Callable[..., bytes]] = {
    Say: Stage.forged,
    Again: Stage.again,
    Pause: Stage.pause,
    Raw: Stage.raw,
}
