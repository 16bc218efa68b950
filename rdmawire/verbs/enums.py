"""States and types of queue pairs, with libibverbs' numbers. IBA 10.3.1."""

from enum import Enum, IntEnum, IntFlag
from types import MappingProxyType
from typing import Final, NamedTuple

from rdmawire.terminal import describe_fields


class QPState(IntEnum):
    """The state of a queue pair: the numbers of ibv_qp_state."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class Answers(Enum):
    """Which responses of a responder may be sent: ACKs, NAKs, responses and CNPs."""

    NONE = "none"
    FINAL = "the NAK that ended the queue pair, and what stands before it"
    ALL = "all"


class StateRules(NamedTuple):
    """The packets and work that a queue pair accepts in one state. IBA 10.3.1.

    ``post_recv`` and ``post_send`` say that work may be posted; ``flush_recv`` and ``flush_send``
    that it completes at once with a flush error, as does work queued before. ``packets`` says that
    requests, responses and CNPs of the peer are accepted. ``answers`` says which responses are
    sent. ``begin`` says that posted sends are started, ``send`` that started ones continue and are
    retransmitted.
    """

    post_recv: bool = False
    post_send: bool = False
    flush_recv: bool = False
    flush_send: bool = False
    packets: bool = False
    answers: Answers = Answers.NONE
    begin: bool = False
    send: bool = False


class QPType(IntEnum):
    """The transport service: the numbers of ibv_qp_type, where XRC_INI is called XRC_SEND."""

    RC = 2
    UC = 3
    UD = 4
    RAW_PACKET = 8
    XRC_INI = 9
    XRC_TGT = 10


class PortState(IntEnum):
    """The state of a port's link: the numbers of ibv_port_state."""

    DOWN = 1
    ACTIVE = 4


class MigrationState(IntEnum):
    """Use of the alternate path: the numbers of ibv_mig_state. IBA 17.2.8."""

    MIGRATED = 0
    REARM = 1
    ARMED = 2


_ALL: Final = Answers.ALL
STATE_RULES: Final = MappingProxyType(
    {
        QPState.RESET: StateRules(),
        QPState.INIT: StateRules(post_recv=True),
        QPState.RTR: StateRules(post_recv=True, packets=True, answers=_ALL),
        QPState.RTS: StateRules(
            post_recv=True, post_send=True, packets=True, answers=_ALL, begin=True, send=True
        ),
        QPState.SQD: StateRules(
            post_recv=True, post_send=True, packets=True, answers=_ALL, send=True
        ),
        QPState.SQE: StateRules(
            post_recv=True, post_send=True, flush_send=True, packets=True, answers=_ALL
        ),
        QPState.ERR: StateRules(
            post_recv=True,
            post_send=True,
            flush_recv=True,
            flush_send=True,
            answers=Answers.FINAL,
        ),
    }
)
"""Rules of each state."""


class WCStatus(IntEnum):
    """The result of a work request: the numbers of ibv_wc_status. IBA 11.6.2."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_EEC_OP_ERR = 3
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    LOC_RDD_VIOL_ERR = 14
    REM_INV_RD_REQ_ERR = 15
    REM_ABORT_ERR = 16
    INV_EECN_ERR = 17
    INV_EEC_STATE_ERR = 18
    FATAL_ERR = 19
    RESP_TIMEOUT_ERR = 20
    GENERAL_ERR = 21


SUCCESS: Final = WCStatus.SUCCESS
"""For code that runs for every message: the attribute lookup takes six times as long."""


class WCOpcode(IntEnum):
    """The completed operation: the numbers of ibv_wc_opcode; REG_MR, absent there, of ib_wc_opcode.

    ``opcode & WCOpcode.RECV`` distinguishes receives from sends.
    """

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    BIND_MW = 5
    LOCAL_INV = 6
    TSO = 7
    FLUSH = 8
    ATOMIC_WRITE = 9
    REG_MR = 10
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


class WCFlags(IntFlag):
    """Which fields of a completion are valid: the numbers of ibv_wc_flags."""

    GRH = 1
    WITH_IMM = 2
    IP_CSUM_OK = 4
    WITH_INV = 8


class NetworkType(IntEnum):
    """The type of a datagram's network header: the numbers of Linux's rdma_network_type."""

    IB = 0
    ROCE_V1 = 1
    IPV4 = 2
    IPV6 = 3


class WorkCompletion(NamedTuple):
    """The result of one work request.

    Of one that failed, only ``wr_id``, ``status``, ``vendor_err`` and ``qp_num`` are valid
    (ibv_poll_cq(3)). ``byte_len`` counts bytes, for UD with the 40 of the GRH. ``imm_data`` is the
    number as on the wire, most significant byte first.

    Datagrams also have fields of the kernel's ib_wc: ``pkey_index`` is the index in the port's
    table of the P_Key that matched, ``sl`` the priority of the VLAN tag, ``vlan_id`` the VLAN
    (``None`` without a tag), ``smac`` the source MAC address (6 bytes), and ``network_hdr_type``
    the header in the first 40 bytes of the receive.
    """

    wr_id: int
    status: WCStatus = WCStatus.SUCCESS
    opcode: WCOpcode = WCOpcode.SEND
    vendor_err: int = 0
    byte_len: int = 0
    imm_data: int = 0
    invalidated_rkey: int = 0
    qp_num: int = 0
    src_qp: int = 0
    wc_flags: int = 0
    pkey_index: int = 0
    slid: int = 0
    sl: int = 0
    dlid_path_bits: int = 0
    vlan_id: int | None = None
    smac: bytes = b""
    network_hdr_type: NetworkType = NetworkType.IB

    def __repr__(self) -> str:
        return describe_fields(self, "status", "opcode")
