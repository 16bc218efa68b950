"""Numbers and fields that applications may rely on: those of libibverbs' verbs.h."""

from enum import IntEnum, IntFlag

import pytest

from rdmawire.verbs.async_event import EventType
from rdmawire.verbs.enums import (
    MigrationState,
    QPState,
    QPType,
    WCFlags,
    WCOpcode,
    WCStatus,
    WorkCompletion,
)
from rdmawire.verbs.profile import AtomicCap
from rdmawire.verbs.srq import SRQType

VERBS_H: dict[type[IntEnum], str] = {
    QPState: "RESET INIT RTR RTS SQD SQE ERR",
    MigrationState: "MIGRATED REARM ARMED",
    AtomicCap: "NONE HCA GLOB",
    SRQType: "BASIC XRC",
    WCStatus: "SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR"
    " MW_BIND_ERR BAD_RESP_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR"
    " RETRY_EXC_ERR RNR_RETRY_EXC_ERR LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR REM_ABORT_ERR"
    " INV_EECN_ERR INV_EEC_STATE_ERR FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR",
    EventType: "CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR COMM_EST SQ_DRAINED PATH_MIG PATH_MIG_ERR"
    " DEVICE_FATAL PORT_ACTIVE PORT_ERR LID_CHANGE PKEY_CHANGE SM_CHANGE SRQ_ERR"
    " SRQ_LIMIT_REACHED QP_LAST_WQE_REACHED CLIENT_REREGISTER GID_CHANGE WQ_FATAL"
    " DEVICE_SPEED_CHANGE",
}
"""Enumerations that count from 0 there."""


@pytest.mark.parametrize("enum", VERBS_H, ids=lambda enum: enum.__name__)
def test_enumerations_count_as_verbs_h_does(enum: type[IntEnum]) -> None:
    assert [member.name for member in enum] == VERBS_H[enum].split()
    assert [member.value for member in enum] == list(range(len(enum)))


@pytest.mark.parametrize(
    ("enum", "numbers"),
    [
        (QPType, {"RC": 2, "UC": 3, "UD": 4, "RAW_PACKET": 8, "XRC_INI": 9, "XRC_TGT": 10}),
        (WCFlags, {"GRH": 1, "WITH_IMM": 2, "IP_CSUM_OK": 4, "WITH_INV": 8}),
    ],
)
def test_other_numbers(enum: type[IntEnum] | type[IntFlag], numbers: dict[str, int]) -> None:
    assert {name: member.value for name, member in enum.__members__.items()} == numbers


def test_one_bit_distinguishes_receives_from_sends() -> None:
    receives = {opcode for opcode in WCOpcode if opcode & WCOpcode.RECV}
    assert receives == {WCOpcode.RECV, WCOpcode.RECV_RDMA_WITH_IMM}


# ibv_poll_cq(3); imm_data and invalidated_rkey share a place there.
IBV_WC = (
    *("wr_id", "status", "opcode", "vendor_err", "byte_len", "imm_data", "invalidated_rkey"),
    *("qp_num", "src_qp", "wc_flags", "pkey_index", "slid", "sl", "dlid_path_bits"),
)


def test_fields_are_those_of_ibv_wc() -> None:
    assert WorkCompletion._fields[: len(IBV_WC)] == IBV_WC
    assert WorkCompletion._fields[len(IBV_WC) :] == ("vlan_id", "smac", "network_hdr_type")


def test_the_defaults_are_a_successful_send() -> None:
    completion = WorkCompletion(7)
    assert (completion.wr_id, completion.status) == (7, WCStatus.SUCCESS)
    assert completion.opcode is WCOpcode.SEND
    assert not any(completion[3:])
