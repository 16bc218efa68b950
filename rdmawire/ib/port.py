"""The port of an adapter: addresses, partitions, link state, raw packets. IBA 14.2.5.

Raw packet queue pairs send and receive complete Ethernet frames: ibv_create_flow(3).
"""

from collections.abc import Sequence
from errno import EINVAL
from typing import Final

from rdmawire.errors import MemoryFault, PageFault, VerbsError
from rdmawire.ib.device import Device
from rdmawire.ib.encapsulation import gids_of
from rdmawire.ib.flow_steering import FlowKind, FlowRule, SteeredFrame, matching
from rdmawire.ib.post_checks import check_qp
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import NO_RECEIVE
from rdmawire.ib.rx_parser import Drop, RxParser
from rdmawire.memory.key import LOCAL_WRITE, KeyFault
from rdmawire.validate import check_bytes, check_int, check_type, iterate
from rdmawire.verbs.ah import (
    FIRST_MULTICAST_LID,
    GID_BYTES,
    PERMISSIVE_LID,
    is_multicast,
)
from rdmawire.verbs.async_event import GIDChanged, PKeyChanged, PortActive, PortError
from rdmawire.verbs.engine import one_thread_at_a_time
from rdmawire.verbs.enums import PortState, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.multicast import MulticastGroups
from rdmawire.verbs.profile import PortAttr, Profile
from rdmawire.verbs.sge import gather
from rdmawire.verbs.wr import RecvWR
from rdmawire.wire.ib import LRH
from rdmawire.wire.inet import Ethernet
from rdmawire.wire.layout import Piece
from rdmawire.wire.roce import Medium

PORT: Final = 1
"""The number of the only port. IBA 14.2.5.6."""

MAX_LMC: Final = 7
"""A port has 128 LIDs at most. IBA 4.1.3."""

_LAST_PKEY: Final = 0xFFFF


def checked_gids(gids: Sequence[bytes], profile: Profile) -> tuple[bytes, ...]:
    """Return a GID table. ``VerbsError`` EINVAL if it is too long or a GID is invalid."""
    table = tuple(iterate("gids", gids))
    check_int("gid_tbl_len", len(table), 0, profile.gid_tbl_len)
    for gid in table:
        check_bytes("gid", gid, GID_BYTES)
    return table


def check_lid(medium: Medium, lid: int, lmc: int) -> None:
    """``VerbsError`` EINVAL for a LID that is no unicast LID, or a wrong LMC. IBA 4.1.3, 7.11.1.

    The lower ``lmc`` bits of ``lid`` are 0. Ports of other media have no LID.
    """
    check_int("lmc", lmc, 0, MAX_LMC)
    least, most = (1, FIRST_MULTICAST_LID - 1) if medium is Medium.INFINIBAND else (0, 0)
    check_int("lid", lid, least, most)
    if lid % (1 << lmc):
        raise VerbsError(f"lid {lid:#x}: the lower {lmc} bits of a base LID are 0", EINVAL)


def _check_port(port_num: int) -> None:
    check_int("port_num", port_num, PORT, PORT)


def deliver(qp: QueuePair, frame: bytes, tag: int = 0) -> None:
    """Write a frame to the next receive; drop it if there is none, or if its pages are not present.

    ``imm_data`` of the completion is the ``tag`` of the rule: there is no immediate data.
    """
    inbound = qp.inbound
    recv = qp.take_receive() if inbound.recv is NO_RECEIVE else inbound.recv
    if recv is None:
        qp.device.drops[Drop.NO_WQE] += 1
        qp.counters.out_of_buffer += 1
        return
    inbound.recv = NO_RECEIVE
    status = _placed(qp, recv, frame)
    if status is WCStatus.SUCCESS:
        done = WorkCompletion(
            recv.wr_id,
            opcode=WCOpcode.RECV,
            byte_len=len(frame),
            imm_data=tag,
            qp_num=qp.qp_num,
        )
        qp.counters.rdma_recvs += qp.report_receive(done)
    elif status is None:
        qp.device.drops[Drop.PAGE_FAULT] += 1
        inbound.recv = recv  # for the next frame
    else:
        qp.complete_receive(recv, status)
        qp.fail()


def _placed(qp: QueuePair, recv: RecvWR, frame: bytes) -> WCStatus | None:
    """Write a frame to a receive, and return the status; ``None`` if pages are not present."""
    sink = gather(qp.device.keys, qp.recv_pd, recv.sges, LOCAL_WRITE)
    if isinstance(sink, KeyFault):
        return WCStatus.LOC_PROT_ERR
    if len(frame) > sink.length:
        return WCStatus.LOC_LEN_ERR
    try:
        sink.write(0, frame)
    except MemoryFault as fault:
        return None if isinstance(fault, PageFault) else WCStatus.LOC_PROT_ERR
    return WCStatus.SUCCESS


@one_thread_at_a_time()
class Port:
    """The part of an adapter that is its port; changes of it are reported as events."""

    device: Device[QueuePair]
    _rx_parser: RxParser
    _gids: tuple[bytes, ...]
    groups: MulticastGroups
    _up: bool
    _flow_rules: list[FlowRule]
    _sniffers: list[FlowRule]
    _thread: int | None = None

    @property
    def gids(self) -> tuple[bytes, ...]:
        """The port's addresses, of 16 bytes each; packets to others are dropped."""
        return self._gids

    @gids.setter
    def gids(self, gids: Sequence[bytes]) -> None:
        self._gids = checked_gids(gids, self.device.profile)
        self._rx_parser.forget()
        self.device.report_port(GIDChanged(PORT))

    @property
    def pkeys(self) -> tuple[int, ...]:
        """The P_Key table, indexed by ``pkey_index`` of a queue pair. IBA 10.9.1.

        Entries with number 0, and those beyond the end, are invalid: no packet matches them.
        """
        return tuple(self.device.pkeys)

    @pkeys.setter
    def pkeys(self, pkeys: Sequence[int]) -> None:
        table = list(iterate("pkeys", pkeys))
        check_int("pkey_tbl_len", len(table), 0, self.device.profile.pkey_tbl_len)
        for pkey in table:
            check_int("pkey", pkey, 0, _LAST_PKEY)
        self.device.pkeys = table
        for qp in self.device.qps.values():
            qp.take_attributes()
        self._rx_parser.forget_routes()
        self.device.report_port(PKeyChanged(PORT))

    @property
    def up(self) -> bool:
        """Whether the port's link is up; while it is down, no frames are received or sent."""
        return self._up

    @up.setter
    def up(self, up: bool) -> None:
        check_type("up", up, bool)
        if up != self._up:
            self._up = up
            self._rx_parser.forget_routes()
            self.device.link_downed += not up
            self.device.report_port((PortActive if up else PortError)(PORT))

    def query_port(self, port_num: int = PORT) -> PortAttr:
        """Return the state and the table sizes of the port. ibv_query_port(3)."""
        _check_port(port_num)
        profile = self.device.profile
        state = PortState.ACTIVE if self.up else PortState.DOWN
        return PortAttr(
            state,
            profile.max_mtu,
            profile.max_mtu,
            profile.gid_tbl_len,
            profile.max_msg_sz,
            profile.pkey_tbl_len,
            self.device.lid,
            self.device.lmc,
        )

    def query_gid(self, port_num: int, index: int) -> bytes:
        """Return a GID of the port (16 bytes), zeros if the entry is unset. ibv_query_gid(3)."""
        _check_port(port_num)
        check_int("gid index", index, 0, self.device.profile.gid_tbl_len - 1)
        return self._gids[index] if index < len(self._gids) else bytes(GID_BYTES)

    def query_pkey(self, port_num: int, index: int) -> int:
        """Return a P_Key of the port, 0 if the entry is unset. ibv_query_pkey(3)."""
        _check_port(port_num)
        check_int("pkey index", index, 0, self.device.profile.pkey_tbl_len - 1)
        return self.device.pkey_at(index)

    def attach_mcast(self, qp: QueuePair, gid: bytes) -> None:
        """Receive a group's packets on a datagram queue pair. ibv_attach_mcast(3)."""
        check_qp(self.device, qp)
        self.groups.attach(gid, qp.qp_num, qp.type)
        self._rx_parser.forget_routes()

    def detach_mcast(self, qp: QueuePair, gid: bytes) -> None:
        """ibv_detach_mcast(3)."""
        check_qp(self.device, qp)
        self.groups.detach(gid, qp.qp_num)
        self._rx_parser.forget_routes()

    def create_flow(self, rule: FlowRule) -> FlowRule:
        """Deliver non-RDMA frames that match ``rule`` to its queue pair. ibv_create_flow(3)."""
        check_type("rule", rule, FlowRule)
        for qp in (rule.qp, *rule.rss):
            check_qp(self.device, qp)
        rule.check()
        self._rules_of_kind(rule).append(rule)
        self._rx_parser.forget_routes()  # a sniffer gets packets of messages that needed none
        return rule

    def destroy_flow(self, rule: FlowRule) -> None:
        """ibv_destroy_flow(3)."""
        check_type("rule", rule, FlowRule)
        if rule not in self._rules_of_kind(rule):
            raise VerbsError(
                "no such flow on this port: name a rule that create_flow returned", EINVAL
            )
        self._rules_of_kind(rule).remove(rule)

    def _rules_of_kind(self, rule: FlowRule) -> list[FlowRule]:
        """Return the list in which a rule is: that of sniffers, or the other."""
        return self._sniffers if rule.kind is FlowKind.SNIFFER else self._flow_rules

    @property
    def flow_count(self) -> int:
        """How many rules of flows there are, sniffers included."""
        return len(self._flow_rules) + len(self._sniffers)

    def has_flows(self, qp: QueuePair) -> bool:
        """Whether a rule names a queue pair."""
        return any(qp in (rule.qp, *rule.rss) for rule in (*self._flow_rules, *self._sniffers))

    def _take_raw(self, data: bytes) -> bool:
        """Deliver a frame to the raw packet queue pairs whose rules match; ``False`` if none."""
        if not self._flow_rules:
            return False
        frame = SteeredFrame(data)
        taken = False
        for rule in matching(self._flow_rules, frame):
            taken = self._take_by_rule(rule, frame) or taken
        self.device.rcv_raw += taken
        return taken

    def _take_by_rule(self, rule: FlowRule, frame: SteeredFrame) -> bool:
        """Deliver or drop a frame as a rule says. ``False`` if its queue pair receives nothing."""
        qp = rule.queue_for(frame.flow)
        if rule.drops:
            self.device.drops[Drop.FLOW] += 1
        elif qp.takes_packets:
            deliver(qp, frame.data, rule.tag)
        else:
            return False
        if rule.counter is not None:
            rule.counter.packets += 1
            rule.counter.bytes += len(frame.data)
        return True

    def _sniff(self, frames: Sequence[bytes]) -> None:
        """Deliver a copy of each frame to the sniffers."""
        for data in frames:
            frame = SteeredFrame(data)
            for rule in self._sniffers:
                self._take_by_rule(rule, frame)

    def _is_mine(self, headers: tuple[Piece, ...]) -> bool:
        """Whether a frame's destination is this port, or a multicast group of its members."""
        first = headers[0]
        destination = gids_of(headers)[1]
        if isinstance(first, LRH):
            return self._is_my_lid(first.dlid, destination)
        if is_multicast(destination):
            return bool(self.groups.members(destination))
        if isinstance(first, Ethernet) and first.dst != self.device.mac:
            return False
        return destination in self.gids

    def _is_my_lid(self, dlid: int, destination: bytes) -> bool:
        """Whether a native packet to ``dlid`` is for this port. IBA 7.7.7, 9.6.1.2.

        ``destination`` is the DGID, no bytes without a GRH. A multicast packet has both addresses
        of a group.
        """
        if FIRST_MULTICAST_LID <= dlid < PERMISSIVE_LID:
            return bool(self.groups.members(destination))
        device = self.device
        return dlid >> device.lmc == device.lid >> device.lmc and destination in (b"", *self.gids)
