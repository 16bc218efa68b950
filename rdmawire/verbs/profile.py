"""Device differences as data: limits, and deviations from the standard.

:data:`IBTA` follows the standard; where that leaves limits to the device, it has those of a current
adapter. :data:`RXE_6_1` and :data:`RXE_6_12` are Linux's soft-RoCE, from its headers and its
behaviour: their responders were compared with state machines that were learned from these kernels.
Errors of a kernel are a :class:`Bug`. :func:`named` finds a profile by its name.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, IntFlag
from errno import EINVAL
from types import MappingProxyType
from typing import Final, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.memory.mw import WindowType
from rdmawire.snapshot import shared
from rdmawire.terminal import describe_fields
from rdmawire.validate import check_int
from rdmawire.verbs.enums import PortState, WCStatus
from rdmawire.wire.ib import RNR_TIMER_NS, Nak
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Operation


class AtomicCap(IntEnum):
    """The scope of atomicity: the numbers of ibv_atomic_cap. IBA 10.7.2.3."""

    NONE = 0
    HCA = 1
    GLOB = 2


class DeviceCap(IntFlag):
    """Capabilities of a device: the numbers of IBV_DEVICE_*. ibv_query_device(3).

    Those of bit 32 and above are in ``device_cap_flags_ex`` alone: ibv_query_device_ex(3).
    """

    RESIZE_MAX_WR = 1 << 0
    BAD_PKEY_CNTR = 1 << 1
    BAD_QKEY_CNTR = 1 << 2
    RAW_MULTI = 1 << 3
    AUTO_PATH_MIG = 1 << 4
    CHANGE_PHY_PORT = 1 << 5
    UD_AV_PORT_ENFORCE = 1 << 6
    CURR_QP_STATE_MOD = 1 << 7
    SHUTDOWN_PORT = 1 << 8
    PORT_ACTIVE_EVENT = 1 << 10
    SYS_IMAGE_GUID = 1 << 11
    RC_RNR_NAK_GEN = 1 << 12
    SRQ_RESIZE = 1 << 13
    N_NOTIFY_CQ = 1 << 14
    MEM_WINDOW = 1 << 17
    UD_IP_CSUM = 1 << 18
    XRC = 1 << 20
    MEM_MGT_EXTENSIONS = 1 << 21
    MEM_WINDOW_TYPE_2A = 1 << 23
    MEM_WINDOW_TYPE_2B = 1 << 24
    RC_IP_CSUM = 1 << 25
    RAW_IP_CSUM = 1 << 26
    MANAGED_FLOW_STEERING = 1 << 29
    RAW_SCATTER_FCS = 1 << 34
    PCI_WRITE_END_PADDING = 1 << 36
    FLUSH_GLOBAL = 1 << 38
    FLUSH_PERSISTENT = 1 << 39
    ATOMIC_WRITE = 1 << 40


_ENGINE_CAPS: Final = (
    DeviceCap.PORT_ACTIVE_EVENT
    | DeviceCap.SYS_IMAGE_GUID
    | DeviceCap.RC_RNR_NAK_GEN
    | DeviceCap.SRQ_RESIZE
    | DeviceCap.MEM_WINDOW
    | DeviceCap.XRC
    | DeviceCap.MEM_MGT_EXTENSIONS
    | DeviceCap.MANAGED_FLOW_STEERING
)
"""Capabilities of every profile."""
_WINDOW_CAPS: Final = {
    WindowType.TYPE_2A: DeviceCap.MEM_WINDOW_TYPE_2A,
    WindowType.TYPE_2B: DeviceCap.MEM_WINDOW_TYPE_2B,
}
_OPERATION_CAPS: Final = {
    Operation.FLUSH: DeviceCap.FLUSH_GLOBAL,
    Operation.ATOMIC_WRITE: DeviceCap.ATOMIC_WRITE,
}


class Bug(Enum):
    """A bug of Linux's soft-RoCE that affects a peer, for :attr:`Profile.bugs`.

    No profile has any by default. ``replace(RXE_6_12, bugs=BUGS_6_12)`` is a profile with the bugs
    of a kernel.
    """

    ACK_PSN_KEPT = "the PSN of the last ACK is initially 0xffffff, and RESET does not clear it"
    """A duplicate before any request is acknowledged with a PSN that no request had."""
    ATOMIC_FROM_READ = "an atomic with the PSN of an earlier READ gets the READ's address"
    """The original value in its response is the address that the READ named."""
    ATOMIC_FROM_ANY = "a retransmitted atomic is not compared with the original one"
    """A FETCH_ADD gets the response of a CMP_SWAP that had the same PSN."""
    READ_GROWS = "a retransmitted READ may request more than was left of the original one"
    """Its responses have PSNs of later requests, and the expected PSN moves past them."""
    EMPTY_READ_FORGOTTEN = "a retransmitted READ of length 0 gets no response"
    ATOMIC_WRITE_FORGETS = "a retransmitted ATOMIC WRITE has address 0"
    ACK_COMPLETES_READ = "an ACK with the PSN of the last response completes a READ or atomic"
    """If only that response is missing. The work succeeds without the data."""
    OLD_ACK_BREAKS_READ = "an old ACK between the responses to a READ fails the connection"
    """The next response completes the work with its current status, success."""
    ERR_KEEPS_RECEIVES = "receives posted in ERR are never flushed"
    ERR_FLUSHES_LATE = "receives posted in ERR are flushed only when the next request arrives"


_ONLY_6_12 = {
    Bug.ERR_FLUSHES_LATE,
    Bug.EMPTY_READ_FORGOTTEN,
    Bug.ATOMIC_WRITE_FORGETS,
    Bug.OLD_ACK_BREAKS_READ,
}
BUGS_6_1: Final = frozenset(Bug) - _ONLY_6_12
"""The bugs of Linux 6.1."""
BUGS_6_12: Final = frozenset(Bug) - {Bug.ERR_KEEPS_RECEIVES}
"""The bugs of Linux 6.12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One device model. Limits have the names of ibv_query_device(3) and ibv_query_port(3)."""

    name: str
    """The name for :func:`named`."""

    max_qp: int
    """Queue pairs."""
    max_qp_wr: int
    """Work requests in one queue of a queue pair."""
    max_sge: int
    """SGEs in a work request."""
    max_sge_rd: int
    """SGEs in an RDMA READ request."""
    max_inline_data: int
    """Bytes of a message that may be inline in the work request."""
    max_qp_rd_atom: int
    """READs and atomics in progress at a queue pair as responder."""
    max_qp_init_rd_atom: int
    """READs and atomics in progress at a queue pair as requester."""
    max_res_rd_atom: int
    """READs and atomics in progress at all responders together."""
    max_srq: int
    """Shared receive queues."""
    max_srq_wr: int
    """Receives in a shared receive queue."""
    max_srq_sge: int
    """SGEs in a receive of a shared receive queue."""
    max_cq: int
    """Completion queues."""
    max_cqe: int
    """Completions in a completion queue."""
    max_cq_count: int
    """Maximum completions per event (``cq_mod_caps``)."""
    max_cq_period: int
    """Maximum delay of an event in nanoseconds (``cq_mod_caps`` counts microseconds)."""

    max_pd: int
    """Protection domains."""
    max_mr: int
    """Memory regions."""
    max_mr_size: int
    """Bytes of a region."""
    max_mw: int
    """Memory windows."""
    window_type_2: WindowType
    """The subtype of type 2 windows: 2A or 2B. IBA 10.6.7.2."""
    max_fast_reg_pages: int
    """Pages that one fast registration (REG_MR) may list."""
    page_size_cap: int
    """Page sizes, one bit each."""
    atomic_cap: AtomicCap
    """The scope of atomicity."""

    max_ah: int
    """Address handles."""
    max_mcast_grp: int
    """Multicast groups."""
    max_mcast_qp_attach: int
    """Queue pairs in one multicast group."""
    max_total_mcast_qp_attach: int
    """Queue pairs in all multicast groups together."""

    phys_port_cnt: int
    """Ports, numbered from 1."""
    max_mtu: MTU
    """Greatest path MTU."""
    max_msg_sz: int
    """Bytes of a message."""
    pkey_tbl_len: int
    """P_Keys of a port."""
    gid_tbl_len: int
    """GIDs of a port."""
    local_ca_ack_delay: int
    """The maximum response delay: 4.096 us times two to this power. IBA 9.7.6.1.3."""

    endless_retry_cnt: int | None
    """The ``retry_cnt`` without a limit, if any. (``rnr_retry`` 7 has none: 9.7.5.2.8.)"""
    packets_per_ack: int
    """AckReq is set in the last packet of a message, and this many packets after the previous one.
    """
    packets_in_flight: int
    """Maximum unacknowledged packets of a requester, unless ``limit_in_flight`` sets a number."""
    responses_fill_window: bool
    """Whether pending responses to READs and atomics count among ``packets_in_flight``."""
    rnr_timer_ns: tuple[int, ...]
    """The wait of a requester for each RNR NAK timer 0..31, in nanoseconds."""
    too_long: Nak
    """The NAK of a message longer than its receive."""
    too_long_status: WCStatus
    """The completion status of that receive."""
    ports_by_qpn: bool
    """Whether datagrams have a UDP source port for each sending queue pair, not each flow."""
    migrates: bool
    """Whether it supports automatic path migration, and sets MigReq. IBA 17.2.8."""
    end_to_end_credits: bool
    """Whether ACKs have credits for the receives that are left. IBA 9.7.7.2."""
    reads_beyond: int
    """READs and atomics in progress at a responder beyond the agreed number, if that is not 0."""
    resumed_reads_go_on: bool
    """Whether the responses to a READ that was resumed begin with a MIDDLE."""
    ignores_srq_pd: bool
    """Whether receives of a shared receive queue are in the domain of the queue pair that uses
    them, not in the queue's. IBA 10.2.9."""
    naks_malformed_requests: bool
    """Whether a reserved opcode, or a payload that the operation does not allow, is answered with a
    NAK (invalid request). IBA 9.7.4.1.4, 9.7.4.1.6."""
    frees_slots_at_poll: bool
    """Whether work holds its queue slot until its completion, or a later one, is polled; else until
    it completes. IBA 10.8.6."""
    validates_duplicates: bool
    """Whether a duplicate is compared with the first request: a SEND or WRITE must not have the PSN
    of a READ or atomic, a READ must name the address that its PSN implies, and an atomic must have
    the same operands. IBA 9.7.5.1.4."""
    acks_newest: bool
    """Whether the ACK of a duplicate SEND or WRITE has the PSN of the newest request that is no
    READ, although READs and atomics come before it. IBA 9.7.5.1.4."""
    naks_gaps_after_rnr: bool
    """Whether a gap is answered with a NAK although the expected request got an RNR NAK.
    IBA 9.7.5.2.8."""
    checks_send_lengths: bool
    """Whether packets of a SEND must have the length for their position. IBA 9.7.4.1.6."""
    limits_dmalen: bool
    """Whether a RETH.dmalen beyond 2**31 is a length error, not a key error. IBA 9.7.4.1.6."""
    first_may_fit: bool
    """Whether the first packet of a WRITE may have all bytes that RETH.dmalen announces. IBA
    9.7.4.1.6."""
    receives_have_grh: bool
    """Whether completions of receives have the flag GRH on connected services, too. IBA 11.4.2.1.
    """
    unsupported: frozenset[Operation]
    """Operations that it does not support: such requests are dropped, such work is refused."""
    bugs: frozenset[Bug] = frozenset()
    """Bugs of Linux that it has."""
    local_inv_waits: bool
    """Whether a LOCAL_INV waits for all earlier work even without a fence. IBA 10.6.5.1."""
    flush_icrc_covers_headers_twice: bool
    """Whether the ICRC of a FLUSH covers its headers twice, sent and received, as in Linux, whose
    opcode table lacks the payload offset of FLUSH. IBA 7.8.1."""
    page_fault_ns: int
    """Time (ns) until a missing page of an on-demand region is present. With 0 it is present at
    once, and there are no page faults; else a responder answers with an RNR NAK, as mlx5 does."""
    memory_management_error: WCStatus
    """Completion status of a LOCAL_INV or REG_MR that is refused. IBA 11.6.2."""

    __deepcopy__ = shared

    @property
    def device_cap_flags(self) -> DeviceCap:
        """The capabilities of the device: ``device_cap_flags_ex`` of ibv_query_device_ex(3).

        FLUSH_PERSISTENT is not one of them: memory of hosts is not persistent.
        """
        flags = _ENGINE_CAPS | _WINDOW_CAPS[self.window_type_2]
        if self.migrates:
            flags |= DeviceCap.AUTO_PATH_MIG
        for operation, capability in _OPERATION_CAPS.items():
            if operation not in self.unsupported:
                flags |= capability
        return flags


class PortAttr(NamedTuple):
    """Attributes of a port, with the names of ibv_port_attr. ibv_query_port(3)."""

    state: PortState
    max_mtu: MTU
    active_mtu: MTU
    gid_tbl_len: int
    """Size of the GID table."""
    max_msg_sz: int
    """Bytes of the longest message."""
    pkey_tbl_len: int
    """Size of the P_Key table."""
    lid: int = 0
    """The base LID of a port on an InfiniBand link, else 0."""
    lmc: int = 0
    """The port has 2 ** ``lmc`` LIDs."""

    def __repr__(self) -> str:
        return describe_fields(self)


IBTA: Final = Profile(
    name="ibta",
    max_qp=1 << 18,
    max_qp_wr=1 << 15,
    max_sge=30,
    max_sge_rd=30,
    max_inline_data=1024,
    max_qp_rd_atom=16,
    max_qp_init_rd_atom=16,
    max_res_rd_atom=16 << 18,
    max_srq=1 << 18,
    max_srq_wr=(1 << 15) - 1,
    max_srq_sge=31,
    max_cq=1 << 24,
    max_cqe=(1 << 22) - 1,
    max_cq_count=0xFFFF,
    max_cq_period=0xFFFF * 1000,
    max_pd=1 << 24,
    max_mr=1 << 24,
    max_mr_size=(1 << 64) - 1,
    max_mw=1 << 24,
    window_type_2=WindowType.TYPE_2B,
    max_fast_reg_pages=1 << 16,
    page_size_cap=0xFFFF_F000,
    atomic_cap=AtomicCap.HCA,
    max_ah=(1 << 31) - 1,
    max_mcast_grp=1 << 21,
    max_mcast_qp_attach=240,
    max_total_mcast_qp_attach=240 << 21,
    phys_port_cnt=1,
    max_mtu=MTU.MTU_4096,
    max_msg_sz=1 << 31,
    pkey_tbl_len=128,
    gid_tbl_len=256,
    local_ca_ack_delay=16,
    endless_retry_cnt=None,
    packets_per_ack=64,  # the standard leaves it to the requester
    # The standard allows half of the PSN range (IBA 9.7.1). After a loss all packets from there on
    # are sent again, so adapters use smaller limits; Linux has 128.
    packets_in_flight=128,
    responses_fill_window=False,  # READs are bounded by max_rd_atomic
    rnr_timer_ns=RNR_TIMER_NS,
    too_long=Nak.INVALID_REQUEST,  # IBA 9.9.3: a length error
    too_long_status=WCStatus.LOC_LEN_ERR,
    ports_by_qpn=False,
    migrates=True,
    end_to_end_credits=True,
    reads_beyond=0,  # IBA 9.7.4.1.5
    resumed_reads_go_on=False,
    ignores_srq_pd=False,
    naks_malformed_requests=True,
    frees_slots_at_poll=True,
    validates_duplicates=True,
    acks_newest=False,
    naks_gaps_after_rnr=False,
    checks_send_lengths=True,
    limits_dmalen=True,
    first_may_fit=False,
    receives_have_grh=False,
    unsupported=frozenset(),
    local_inv_waits=False,
    flush_icrc_covers_headers_twice=False,
    page_fault_ns=0,
    memory_management_error=WCStatus.MW_BIND_ERR,  # its name in libibverbs
)
"""The standard, and the default."""

_RXE_MAX = 1 << 20

RXE_6_12: Final = Profile(
    name="rxe-6.12",
    max_qp=_RXE_MAX - 16,
    max_qp_wr=_RXE_MAX,
    max_sge=32,
    max_sge_rd=32,
    max_inline_data=32 * 16,
    max_qp_rd_atom=128,
    max_qp_init_rd_atom=128,
    max_res_rd_atom=0x3F000,
    max_srq=_RXE_MAX - 0x20001,
    max_srq_wr=_RXE_MAX,
    max_srq_sge=27,
    max_cq=_RXE_MAX,
    max_cqe=(1 << 15) - 1,
    max_cq_count=0,  # no moderation
    max_cq_period=0,
    max_pd=_RXE_MAX,
    max_mr=_RXE_MAX // 2 - 1,
    max_mr_size=(1 << 64) - 1,
    max_mw=_RXE_MAX // 2 - 1,
    window_type_2=WindowType.TYPE_2B,
    max_fast_reg_pages=512,
    page_size_cap=0xFFFF_F000,
    atomic_cap=AtomicCap.HCA,
    max_ah=(1 << 15) - 1,
    max_mcast_grp=8192,
    max_mcast_qp_attach=56,
    max_total_mcast_qp_attach=0x70000,
    phys_port_cnt=1,
    max_mtu=MTU.MTU_4096,
    max_msg_sz=1 << 31,
    pkey_tbl_len=1,
    gid_tbl_len=1024,
    local_ca_ack_delay=15,
    endless_retry_cnt=7,
    # It tests for more than 64 before it counts, so the 66th packet has AckReq.
    packets_per_ack=66,
    # It stops when more than 128 are unacknowledged, so 129 are sent.
    packets_in_flight=129,
    responses_fill_window=True,
    # Timer 25 is 61.41 ms in Linux, by mistake; the standard has 61.44.
    rnr_timer_ns=(*RNR_TIMER_NS[:25], 61_410_000, *RNR_TIMER_NS[26:]),
    # A message that is too long counts as a malformed WQE of the responder.
    too_long=Nak.REMOTE_OPERATIONAL_ERROR,
    too_long_status=WCStatus.LOC_QP_OP_ERR,
    ports_by_qpn=True,
    migrates=False,
    end_to_end_credits=False,
    # It does not enforce the limit, and only remembers fewer; pending responses are bounded here.
    reads_beyond=512,
    resumed_reads_go_on=True,
    ignores_srq_pd=True,
    naks_malformed_requests=False,
    # Its completer and responder remove the entries from the queues.
    frees_slots_at_poll=False,
    validates_duplicates=False,
    acks_newest=True,
    naks_gaps_after_rnr=True,
    checks_send_lengths=True,
    limits_dmalen=True,
    first_may_fit=True,
    receives_have_grh=True,
    unsupported=frozenset(),
    local_inv_waits=True,
    flush_icrc_covers_headers_twice=True,
    page_fault_ns=0,
    memory_management_error=WCStatus.LOC_QP_OP_ERR,
)
"""Soft-RoCE of Linux 6.12."""

RXE_6_1: Final = replace(
    RXE_6_12,
    name="rxe-6.1",
    checks_send_lengths=False,
    limits_dmalen=False,
    unsupported=frozenset({Operation.FLUSH, Operation.ATOMIC_WRITE}),
    flush_icrc_covers_headers_twice=False,  # FLUSH is not supported
)
"""Soft-RoCE of Linux 6.1."""

RXE: Final = replace(RXE_6_12, name="rxe")
"""Soft-RoCE of the newest supported kernel."""

PROFILES: Final = MappingProxyType(
    {profile.name: profile for profile in (IBTA, RXE, RXE_6_1, RXE_6_12)}
)
"""All profiles, by name."""


def named(name: str) -> Profile:
    """Return a profile by name. Raises ``VerbsError`` EINVAL if there is none."""
    if name not in PROFILES:
        raise VerbsError(f"no profile {name!r}: there are {', '.join(PROFILES)}", EINVAL)
    return PROFILES[name]


class Bounds(NamedTuple):
    """The range of a number: from ``low`` to the limit that ``high`` reads from a profile."""

    low: int
    high: Callable[[Profile], int]
    words: type[IntEnum] | None = None

    def check(self, field: str, value: int, profile: Profile) -> None:
        """Raises ``VerbsError`` EINVAL, with the name of ``field``, if ``value`` is out of range.

        The error lists the meanings of the numbers if there are ``words``.
        """
        high = self.high(profile)
        if isinstance(value, int) and self.low <= value <= high:
            return
        try:
            check_int(field, value, int(self.low), int(high))
        except VerbsError as error:
            if self.words is None:
                raise
            meanings = ", ".join(f"{word.value} {word.name}" for word in self.words)
            raise VerbsError(f"{error.reason} ({meanings})", error.errno) from None


def up_to(high: int) -> Bounds:
    """The range from 0 to a limit that is the same for all devices."""
    return Bounds(0, lambda _: high)
