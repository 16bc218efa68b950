"""The functions of ``librdmacm.so.1`` with their symbol versions: the one table of exports.

Names and versions are those of rdma-core's ``librdmacm.map`` up to RDMACM_1.5. This module imports
the standard library alone.
"""

from collections.abc import Iterator

SONAME = "librdmacm.so.1"
HEADER = "rdma/rdma_cma.h"
"""The header that the library is compiled with, beside that of libibverbs."""
PACKAGES = "librdmacm-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL)"
SOURCES = ("../ibverbs/connection.c", "../ibverbs/table.c", "../ibverbs/trace.c")
"""Files of the other library that this one has, too."""
LINK = ("ibverbs",)
"""Libraries that are built before, and linked."""


_FUNCTIONS = {
    "1.0": (
        "rdma_accept rdma_ack_cm_event rdma_bind_addr rdma_connect rdma_create_ep"
        " rdma_create_event_channel rdma_create_id rdma_create_qp rdma_create_qp_ex"
        " rdma_create_srq rdma_create_srq_ex rdma_destroy_ep rdma_destroy_event_channel"
        " rdma_destroy_id rdma_destroy_qp rdma_destroy_srq rdma_disconnect rdma_event_str"
        " rdma_free_devices rdma_freeaddrinfo rdma_get_cm_event rdma_get_devices"
        " rdma_get_dst_port rdma_get_request rdma_get_src_port rdma_getaddrinfo"
        " rdma_join_multicast rdma_leave_multicast rdma_listen rdma_migrate_id rdma_notify"
        " rdma_reject rdma_resolve_addr rdma_resolve_route rdma_set_option"
        " raccept rbind rclose rconnect rfcntl rgetpeername rgetsockname rgetsockopt riomap"
        " riounmap riowrite rlisten rpoll rread rreadv rrecv rrecvfrom rrecvmsg rselect rsend"
        " rsendmsg rsendto rsetsockopt rshutdown rsocket rwrite rwritev"
    ),
    "1.1": "rdma_join_multicast_ex",
    "1.2": "rdma_establish rdma_init_qp_attr",
    "1.3": "rdma_get_remote_ece rdma_reject_ece rdma_set_local_ece",
    "1.4": "rdma_query_addrinfo rdma_resolve_addrinfo rdma_write_cm_event",
    "1.5": "repoll_create repoll_ctl repoll_wait",
}
"""The functions, by version."""


def exports() -> Iterator[tuple[str, str]]:
    """Every symbol of the library, with its version. None of them is refused."""
    for version, names in _FUNCTIONS.items():
        yield from ((name, f"RDMACM_{version}") for name in names.split())
