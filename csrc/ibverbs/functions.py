"""The functions of ``libibverbs.so.1`` with their symbol versions: the one table of exports.

The build makes the version script and the refusing stubs from it, and the documentation its list.
Names and versions are those of rdma-core's ``libibverbs.map`` up to IBVERBS_1.18 and
IBVERBS_PRIVATE_65. This module imports the standard library alone.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

SONAME = "libibverbs.so.1"


class Refusal(Enum):
    """What a function that is not implemented does: it returns this, with errno EOPNOTSUPP."""

    ERRNO = "errno"
    """The errno itself, as most functions that return ``int`` do."""
    MINUS_ONE = "minus_one"
    """-1."""
    NULL = "null"
    """A null pointer."""
    NOTHING = "nothing"
    """Nothing: the function returns no value, or providers call it when they are loaded."""
    DATA = "data"
    """It is no function but a variable of one zero byte."""


class Export(NamedTuple):
    """A symbol with one version. ``refusal`` is ``None`` for implemented functions.

    ``default`` says that programs that are linked now bind to this version. ``private``: the C
    function is named ``rw_`` and the name, so that all of its versions can be given by aliases.
    """

    name: str
    version: str
    refusal: Refusal | None = None
    default: bool = True
    private: bool = False


_PUBLIC = {
    "1.0": (
        "ibv_create_comp_channel ibv_destroy_comp_channel ibv_rate_to_mult mult_to_ibv_rate"
        " ibv_get_sysfs_path ibv_read_sysfs_file"
    ),
    "1.1": (
        "ibv_ack_async_event ibv_ack_cq_events ibv_alloc_pd ibv_attach_mcast ibv_close_device"
        " ibv_create_ah ibv_create_ah_from_wc ibv_create_cq ibv_create_qp"
        " ibv_create_srq ibv_dealloc_pd ibv_dereg_mr ibv_destroy_ah"
        " ibv_destroy_cq ibv_destroy_qp ibv_destroy_srq ibv_detach_mcast ibv_dofork_range"
        " ibv_dontfork_range ibv_event_type_str ibv_fork_init ibv_free_device_list"
        " ibv_get_async_event ibv_get_cq_event ibv_get_device_guid ibv_get_device_list"
        " ibv_get_device_name ibv_init_ah_from_wc ibv_modify_qp ibv_modify_srq ibv_node_type_str"
        " ibv_open_device ibv_port_state_str ibv_query_device ibv_query_gid ibv_query_pkey"
        " ibv_query_port ibv_query_qp ibv_query_srq ibv_rate_to_mbps ibv_reg_mr ibv_rereg_mr"
        " ibv_resize_cq ibv_resolve_eth_l2_from_gid ibv_wc_status_str mbps_to_ibv_rate"
    ),
    "1.5": "ibv_get_pkey_index",
    "1.6": "ibv_qp_to_qp_ex",
    "1.7": "ibv_reg_mr_iova",
    "1.8": "ibv_reg_mr_iova2",
    "1.9": "ibv_get_device_index",
    "1.10": (
        "ibv_import_device ibv_import_mr ibv_import_pd ibv_query_ece ibv_set_ece ibv_unimport_mr"
        " ibv_unimport_pd"
    ),
    "1.11": "_ibv_query_gid_ex _ibv_query_gid_table",
    "1.12": "ibv_reg_dmabuf_mr",
    "1.13": "ibv_import_dm ibv_is_fork_initialized ibv_unimport_dm",
    "1.14": "ibv_query_qp_data_in_order",
    "1.15": "ibv_alloc_dmah ibv_dealloc_dmah ibv_reg_mr_ex",
    "1.16": "ibv_dm_export_dmabuf_fd ibv_query_port_speed",
    "1.17": "ibv_alloc_buf ibv_free_buf ibv_reg_buf_mr",
    "1.18": (
        "_ibv_query_comp_cntr_caps ibv_create_comp_cntr ibv_destroy_comp_cntr"
        " ibv_export_buf_dmabuf_fd ibv_inc_comp_cntr ibv_inc_err_comp_cntr ibv_qp_attach_comp_cntr"
        " ibv_read_comp_cntr ibv_read_err_comp_cntr ibv_set_comp_cntr ibv_set_err_comp_cntr"
    ),
}
"""Implemented functions, by version."""

_PUBLIC_REFUSED = {
    "1.0": {
        Refusal.NOTHING: (
            "ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern"
        ),
    },
    "1.1": {Refusal.NOTHING: "ibv_copy_ah_attr_from_kern ibv_register_driver"},
}
"""Refused functions, by version: private ones of old providers."""

_BEFORE_2008 = {
    Refusal.NULL: (
        "ibv_get_device_list ibv_get_device_name ibv_open_device ibv_alloc_pd ibv_reg_mr"
        " ibv_create_cq ibv_create_srq ibv_create_qp ibv_create_ah"
    ),
    Refusal.NOTHING: "ibv_free_device_list ibv_ack_async_event ibv_ack_cq_events",
    Refusal.MINUS_ONE: (
        "ibv_get_device_guid ibv_close_device ibv_get_async_event ibv_query_device ibv_query_port"
        " ibv_query_gid ibv_query_pkey ibv_dealloc_pd ibv_dereg_mr ibv_resize_cq ibv_destroy_cq"
        " ibv_get_cq_event ibv_modify_srq ibv_query_srq ibv_destroy_srq ibv_query_qp"
        " ibv_modify_qp ibv_destroy_qp ibv_destroy_ah ibv_attach_mcast ibv_detach_mcast"
    ),
}
"""Functions that were in IBVERBS_1.0 with the structures of libibverbs 1.0, before 2008."""

INLINE = (
    "ibv_poll_cq ibv_req_notify_cq ibv_post_send ibv_post_recv ibv_post_srq_recv ibv_alloc_mw"
    " ibv_dealloc_mw ibv_bind_mw ibv_query_device_ex ibv_query_rt_values_ex ibv_query_gid_ex"
    " ibv_query_gid_table ibv_advise_mr ibv_create_cq_ex ibv_modify_cq ibv_create_qp_ex ibv_open_qp"
    " ibv_create_srq_ex ibv_get_srq_num ibv_open_xrcd ibv_close_xrcd ibv_alloc_td ibv_dealloc_td"
    " ibv_alloc_parent_domain ibv_start_poll ibv_next_poll ibv_end_poll ibv_alloc_dm ibv_free_dm"
    " ibv_reg_dm_mr ibv_memcpy_to_dm ibv_memcpy_from_dm ibv_alloc_null_mr"
    " ibv_create_flow ibv_destroy_flow ibv_create_counters ibv_destroy_counters"
    " ibv_read_counters ibv_attach_counters_point_flow ibv_create_wq ibv_modify_wq ibv_destroy_wq"
    " ibv_post_wq_recv ibv_create_rwq_ind_table ibv_destroy_rwq_ind_table ibv_modify_qp_rate_limit"
)
"""Implemented functions that are no symbols: ``verbs.h`` calls them by pointers of an object.

So are ``ibv_wc_read_*`` and ``ibv_wr_*``, but for those of :data:`INLINE_REFUSED`.
"""

INLINE_REFUSED = (
    "ibv_create_flow_action_esp ibv_modify_flow_action_esp ibv_destroy_flow_action"
    " ibv_post_srq_ops ibv_wr_send_tso ibv_wc_read_cvlan ibv_wc_read_tm_info"
)
"""Functions of the same kind that are refused: encryption of flows, tag matching, segmentation.

``verbs.h`` itself returns EOPNOTSUPP for them. The last three need an option of a queue pair or a
CQ that is refused when the object is created.
"""

PRIVATE_VERSIONS = range(13, 81)
"""The numbers NN of IBVERBS_PRIVATE_NN: every one since rdma-core 13, and room for later ones."""

_PRIVATE = "ibv_query_gid_type ibv_wr_opcode_str"
"""Implemented private functions: librdmacm of old distributions uses them.

In the last version they are the default, so that dlsym(3), which names no version, finds them.
"""

_PRIVATE_REFUSED = {
    Refusal.NULL: "_verbs_init_and_alloc_context verbs_open_device",
    Refusal.NOTHING: (
        "__verbs_log verbs_init_cq verbs_set_ops verbs_uninit_context verbs_register_driver"
        " ibv_dmabuf_heap_destroy ibv_dmabuf_heap_free"
    ),
    Refusal.DATA: "verbs_allow_disassociate_destroy",
    Refusal.MINUS_ONE: "ibv_read_ibdev_sysfs_file ibv_get_fw_ver ibv_dmabuf_heap_cc_shared_init",
    Refusal.ERRNO: (
        "__ioctl_final_num_attrs execute_ioctl ibv_dmabuf_heap_alloc ibv_cmd_advise_mr"
        " ibv_cmd_alloc_dm ibv_cmd_alloc_dmah ibv_cmd_alloc_mw ibv_cmd_alloc_pd"
        " ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_comp_cntr"
        " ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex ibv_cmd_create_cq_ex2"
        " ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp"
        " ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table"
        " ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw"
        " ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_comp_cntr"
        " ibv_cmd_destroy_counters ibv_cmd_destroy_cq ibv_cmd_destroy_flow"
        " ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table"
        " ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_export_dmabuf_fd"
        " ibv_cmd_free_dm ibv_cmd_free_dmah ibv_cmd_get_context ibv_cmd_inc_comp_cntr"
        " ibv_cmd_inc_err_comp_cntr ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp"
        " ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq"
        " ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send"
        " ibv_cmd_post_srq_recv ibv_cmd_qp_attach_comp_cntr ibv_cmd_query_comp_cntr_caps"
        " ibv_cmd_query_context ibv_cmd_query_device ibv_cmd_query_device_any"
        " ibv_cmd_query_device_ex ibv_cmd_query_gid ibv_cmd_query_mr ibv_cmd_query_pkey"
        " ibv_cmd_query_port ibv_cmd_query_port_speed ibv_cmd_query_qp ibv_cmd_query_srq"
        " ibv_cmd_read_comp_cntr ibv_cmd_read_counters ibv_cmd_read_err_comp_cntr"
        " ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_reg_mr_ex"
        " ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq ibv_cmd_set_comp_cntr"
        " ibv_cmd_set_err_comp_cntr"
    ),
}
"""Private functions by which providers use the kernel.

A provider such as libmlx5 is loaded with them when a program is linked to it, but drives none of
the devices here.
"""


def exports() -> Iterator[Export]:
    """Every symbol of the library, the oldest version first."""
    yield from _public()
    for number in PRIVATE_VERSIONS:
        yield from _private(number)


def _public() -> Iterator[Export]:
    for refusal, names in _BEFORE_2008.items():
        for name in names.split():
            yield Export(name, "IBVERBS_1.0", refusal, default=False)
    for version, names in _PUBLIC.items():
        yield from (Export(name, f"IBVERBS_{version}") for name in names.split())
    for version, refused in _PUBLIC_REFUSED.items():
        for refusal, names in refused.items():
            yield from (Export(name, f"IBVERBS_{version}", refusal) for name in names.split())


def _private(number: int) -> Iterator[Export]:
    version = f"IBVERBS_PRIVATE_{number}"
    for name in _PRIVATE.split():
        yield Export(name, version, default=number == PRIVATE_VERSIONS[-1], private=True)
    for refusal, names in _PRIVATE_REFUSED.items():
        yield from (Export(name, version, refusal, default=False) for name in names.split())
    register = f"verbs_register_driver_{number}"
    yield Export(register, version, Refusal.NOTHING, default=False)
