"""A completion has the fields of ibv_wc, in its order, and then some of ib_wc."""

from rdmawire.verbs.enums import WCOpcode, WCStatus, WorkCompletion

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
