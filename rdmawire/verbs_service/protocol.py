"""The protocol between the C libraries and the verbs service: calls, records and rings, as tables.

The libraries (``csrc/``) and the service take every number and every offset from here: the build
writes :func:`c_header` to a file that the C code includes, and Python packs and unpacks by the
classes that :data:`CALLS` and :data:`RECORDS` describe. This module imports the standard library
alone, since the build loads it before anything is installed.

Control
    One SOCK_SEQPACKET connection for each ``ibv_context`` (and one for listing devices). A request
    is an array of unsigned 64-bit integers in host byte order: the number of the call, then its
    arguments. The reply is an array of the same kind: an errno (0 for success), then the values.
    After another errno than 0 there is the reason in words: up to :data:`MAX_REASON` bytes of
    UTF-8, and NULs to a whole number of integers. File descriptors travel beside a reply
    (SCM_RIGHTS). There is one request at a time on a connection.

Work requests
    One ring in shared memory for each context. The library writes records of :data:`WORK_REQUEST`
    and advances ``head``; the service reads them and advances ``tail``. Both are byte counts that
    only grow. A record never wraps: what is left at the end of the ring is skipped by a record of
    kind :data:`PAD`. The library writes to the doorbell eventfd only while ``asleep`` is 1.

Completions
    One ring in shared memory for each CQ, of ``entries`` (a power of two) slots of
    :data:`COMPLETION`. The service advances ``produced``, the library ``consumed``; both count
    completions and only grow. ``armed`` is 0, or :data:`ARM_ANY` or :data:`ARM_SOLICITED` after
    ``ibv_req_notify_cq``; the service sets it to 0 when it writes the event to the channel. The
    library posts a record of :data:`NOTIFY_CQ` if there are completions that it did not consume.

Events
    A completion channel and the asynchronous events of a context are the read ends of pipes. An
    event of a channel is the handle of its CQ, 8 bytes; an asynchronous event is a type
    (``ibv_event_type``) and the handle or number of its object, 8 bytes each. The pipe of an event
    channel of the connection manager has one byte for each event, which CM_GET_EVENT returns.

Memory of a process
    The service reads and writes it through ``/proc/PID/mem``. Where that is refused, or the memory
    is that of a GPU, a thread of the library copies: see :data:`COPY_REQUEST`.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

MAX_WORDS = 64
"""Maximum 64-bit integers of a request or a reply."""

MAX_REASON = 256
"""Maximum bytes of the reason of a refusal; a multiple of 8."""

RING_HEADER = 4096
"""Bytes before the records of a ring: its counters, each in a cache line of its own."""

WORK_RING_BYTES = 4 << 20
"""Bytes of records of a work ring; a power of two."""

HEAD, TAIL, ASLEEP = 0, 64, 128
"""Offsets of the counters of a work ring."""

PRODUCED, CONSUMED, ARMED = 0, 64, 128
"""Offsets of the counters of a completion ring."""

ARM_ANY, ARM_SOLICITED = 1, 2
"""Values of ``armed``: an event for the next completion, or for a solicited or failed one."""

POST_SEND, POST_RECV, POST_SRQ_RECV, NOTIFY_CQ, PAD = 1, 2, 3, 4, 0xFFFF_FFFF
"""Kinds of work records."""

MEMORY_OF_HOST, MEMORY_OF_GPU, MEMORY_OF_DMABUF = 0, 1, 2
"""Where the memory of a region is, as REG_MR says."""

MAX_INLINE_DATA = 1024
"""Maximum ``max_inline_data`` of a queue pair, in bytes."""

MAX_SGE = 32
"""Maximum SGEs of a work request, and therefore of a record."""

COUNTED_OPERATIONS = 0b010111
"""What counters of completions count, as ``ibv_qp_attach_comp_cntr_op``: sends, receives, READs and
WRITEs of the queue pair itself, not those of its peer."""

MAX_RSS_TABLE = 64
"""Maximum entries of an indirection table of work queues; a power of two."""

RSS_KEY_BYTES = 40
"""Bytes of the key of an RSS hash."""

RSS_FIELDS = 0xFF
"""The fields that an RSS hash may have: ``ibv_rx_hash_fields``."""

MAX_FLOW_SPEC_BYTES = 416
"""Maximum bytes of the specifications of a flow; a multiple of 8."""

WINDOW_KEY_STEP = 0x35
"""What a bind of a window of type 1 adds to the lowest byte of its key, as the adapter does."""

COPY_READ, COPY_WRITE = 1, 2
"""Directions of a copy request: from the memory of the process, or to it."""

COPY_BUFFER_BYTES = 4 << 20
"""Bytes of the shared memory through which a library copies; the maximum of one copy request."""


class Call(NamedTuple):
    """A control request: its number, arguments, values and file descriptors, in order.

    ``reply_fds`` are the descriptors beside the reply, ``request_fds`` those beside the request.
    """

    number: int
    name: str
    request: tuple[str, ...]
    reply: tuple[str, ...] = ()
    reply_fds: tuple[str, ...] = ()
    request_fds: tuple[str, ...] = ()


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _array(name: str, words: int) -> str:
    """Names of the integers that hold ``8 * words`` bytes: a text or an array, padded by zeros."""
    return " ".join(f"{name}{index}" for index in range(words))


AH_ATTR = _words(
    "dgid0 dgid1 is_global flow_label sgid_index hop_limit traffic_class"
    " dlid sl src_path_bits static_rate ah_port_num"
)
"""``ibv_ah_attr``. A GID is two integers that have its bytes in memory order."""

QP_CAP = _words("max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data")

QP_ATTR = (
    *_words(
        "qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num"
        " qp_access_flags pkey_index alt_pkey_index en_sqd_async_notify sq_draining"
        " max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry"
        " alt_port_num alt_timeout rate_limit"
    ),
    *AH_ATTR,
    *(f"alt_{name}" for name in AH_ATTR if name != "ah_port_num"),
)
"""``ibv_qp_attr`` without its ``cap``."""

DEVICE_ATTR = _words(
    "node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp"
    " max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom"
    " max_res_rd_atom max_qp_init_rd_atom atomic_cap max_mw max_mcast_grp max_mcast_qp_attach"
    " max_total_mcast_qp_attach max_ah max_srq max_srq_wr max_srq_sge max_pkeys"
    " local_ca_ack_delay phys_port_cnt max_cq_moderation_count max_cq_moderation_period"
    " odp_general odp_rc odp_uc odp_ud odp_xrc max_dm_size"
)
"""``ibv_device_attr``; CQ moderation, paging on demand, device memory of ``ibv_device_attr_ex``.

GUIDs are numbers.
"""

PORT_ATTR = _words(
    "state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr"
    " pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width"
    " active_speed phys_state link_layer flags port_cap_flags2 active_speed_ex"
)
"""``ibv_port_attr``."""

CONN_PARAM = _words(
    "responder_resources initiator_depth flow_control retry_count rnr_retry_count srq qp_num"
)
"""``rdma_conn_param`` without its private data."""

MAX_PRIVATE_DATA = 224
"""Maximum bytes of private data of a message of the connection manager, those of an RTU."""

PRIVATE_DATA = ("private_length", *_words(_array("private", MAX_PRIVATE_DATA // 8)))
"""Private data: how many bytes there are, and the bytes."""

COUNTERS = _words(
    "xmit_packets xmit_bytes rcv_packets rcv_bytes xmit_discards drops retransmits rnr_naks"
    " out_of_sequence ecn_marked cnp_sent cnp_handled qps cqs mrs contexts"
)
"""Counters of a device since the service began, and how many objects it has now."""

_OPENED = (*_words("handle copy_thread"), *DEVICE_ATTR)
_OPENED_FDS = _words("work_ring doorbell async_events copy_socket copy_buffer")

CALLS = (
    # HELLO is the first call of every connection. A service of another protocol answers EPROTO.
    Call(1, "hello", ("protocol",), ("device_count",)),
    Call(2, "get_device", ("index",), (*_words("guid node_type"), *_words(_array("name", 8)))),
    # handle: the index of the device plus one. The work ring's descriptor is the cmd_fd by which
    # another process imports the device.
    Call(3, "open_device", ("index",), _OPENED, _OPENED_FDS),
    Call(52, "import_device", (), _OPENED, _OPENED_FDS, request_fds=("cmd_fd",)),
    Call(53, "import_pd", ("pd",)),
    Call(54, "import_mr", ("mr",), _words("length lkey rkey")),
    Call(55, "import_dm", ("dm",), ("length",), ("memory",)),
    Call(4, "query_port", ("port_num",), PORT_ATTR),
    Call(5, "query_gid", ("port_num", "index"), _words("gid0 gid1 gid_type ndev_ifindex")),
    Call(6, "query_pkey", ("port_num", "index"), ("pkey",)),
    Call(7, "alloc_pd", (), ("pd",)),
    Call(8, "dealloc_pd", ("pd",)),
    Call(
        9,
        "reg_mr",
        _words("pd address length iova access memory"),
        _words("mr lkey rkey"),
    ),
    # Memory behind a dma-buf: ``offset`` is that in it.
    Call(
        36,
        "reg_dmabuf_mr",
        _words("pd offset length iova access"),
        _words("mr lkey rkey"),
        request_fds=("dmabuf",),
    ),
    # Device memory, which the library maps.
    Call(48, "alloc_dm", _words("length log_alignment"), ("dm",), ("memory",)),
    Call(49, "free_dm", ("dm",)),
    Call(50, "reg_dm_mr", _words("pd dm offset length access"), _words("mr lkey rkey")),
    Call(51, "alloc_null_mr", ("pd",), _words("mr lkey")),
    # Counters of completions: of_errors and adds are 0 or 1.
    Call(56, "create_comp_cntr", ("type",), ("counter",)),
    Call(57, "destroy_comp_cntr", ("counter",)),
    Call(58, "change_comp_cntr", _words("counter of_errors adds value")),
    Call(59, "read_comp_cntr", ("counter",), _words("completions errors")),
    Call(60, "attach_comp_cntr", _words("qp counter operations")),
    Call(10, "rereg_mr", _words("mr flags pd address length access"), _words("lkey rkey")),
    Call(11, "dereg_mr", ("mr",)),
    Call(12, "advise_mr", _words("pd advice flags address length lkey")),
    Call(13, "alloc_mw", ("pd", "type"), ("mw", "rkey")),
    Call(14, "dealloc_mw", ("mw",)),
    Call(15, "create_comp_channel", (), ("channel",), ("events",)),
    Call(16, "destroy_comp_channel", ("channel",)),
    Call(
        17,
        "create_cq",
        _words("cqe channel comp_vector"),  # channel 0: no channel
        _words("cq cqe entries"),
        ("ring",),
    ),
    # The completions that the library did not consume are moved to the new ring.
    Call(18, "resize_cq", ("cq", "cqe"), ("cqe", "entries"), ("ring",)),
    Call(19, "modify_cq", _words("cq count period")),  # period in microseconds
    Call(20, "destroy_cq", ("cq",), ("events_reported",)),
    Call(
        21,
        "create_srq",
        _words("pd srq_type max_wr max_sge srq_limit xrcd cq"),
        _words("srq srq_num max_wr max_sge"),
    ),
    Call(22, "modify_srq", _words("srq mask max_wr srq_limit")),
    Call(23, "query_srq", ("srq",), _words("max_wr max_sge srq_limit")),
    Call(24, "destroy_srq", ("srq",), ("events_reported",)),
    Call(
        25,
        "create_qp",
        (*_words("pd send_cq recv_cq srq xrcd qp_type sq_sig_all create_flags"), *QP_CAP),
        (*_words("qp qp_num"), *QP_CAP),
    ),
    Call(26, "open_qp", _words("xrcd qp_num qp_type"), ("qp", "qp_num")),
    Call(27, "modify_qp", ("qp", "mask", *QP_ATTR), ("qp_state",)),
    Call(28, "query_qp", ("qp",), QP_ATTR),
    Call(29, "destroy_qp", ("qp",), ("events_reported",)),
    Call(30, "create_ah", ("pd", *AH_ATTR), ("ah",)),
    Call(31, "destroy_ah", ("ah",)),
    Call(32, "attach_mcast", _words("qp gid0 gid1 lid")),
    Call(33, "detach_mcast", _words("qp gid0 gid1 lid")),
    # The file that shares an XRC domain, by its device and inode; 0, 0 for a private domain.
    Call(34, "open_xrcd", _words("file_device file_inode flags"), ("xrcd",)),
    Call(35, "close_xrcd", ("xrcd",)),
    # For a connection without an open device.
    Call(37, "read_counters", ("index",), COUNTERS),
    # Write the counters of Linux to their files: the preload library is about to let them be read.
    # It may be the first call of a connection, and replaces HELLO there.
    Call(38, "write_counters", ("protocol",)),
    # Raw packets. A work queue is a queue pair; each word of wqs has two handles, of 32 bits.
    Call(
        100,
        "create_rss_qp",
        _words(
            f"pd function fields wq_count {_array('key', RSS_KEY_BYTES // 8)}"
            f" {_array('wqs', MAX_RSS_TABLE // 2)}"
        ),
        ("qp", "qp_num"),
    ),
    # The specifications are size bytes: structures of ibv_flow_spec, with the handle of counters in
    # place of their address.
    Call(
        101,
        "create_flow",
        _words(
            f"qp type priority port flags count size {_array('specs', MAX_FLOW_SPEC_BYTES // 8)}"
        ),
        ("flow",),
    ),
    Call(102, "destroy_flow", ("flow",)),
    Call(103, "create_counters", (), ("counters",)),
    Call(104, "destroy_counters", ("counters",)),
    Call(105, "read_flow_counters", ("counters",), _words("packets bytes")),
    # The connection manager, on a connection of its own: librdmacm. An id is an rdma_cm_id, in all
    # of a process's channels. An address is a GID (an IPv4 address is mapped), with its family, 4
    # or 6, 0 for none. A port is a number.
    Call(64, "cm_create_channel", (), ("channel",), ("events",)),
    Call(65, "cm_destroy_channel", ("channel",)),
    Call(66, "cm_create_id", _words("channel port_space qp_type"), ("id",)),
    Call(67, "cm_destroy_id", ("id",)),
    Call(68, "cm_bind", _words("id family gid0 gid1 port")),
    # device: the index of the id's device plus one, 0 for none
    Call(
        69,
        "cm_query",
        ("id",),
        _words(
            "device src_family src0 src1 src_port dst_family dst0 dst1 dst_port pkey mtu"
            " traffic_class hop_limit"
        ),
    ),
    Call(
        70,
        "cm_resolve_addr",
        _words("id src_family src0 src1 src_port dst_family dst0 dst1 dst_port"),
    ),
    Call(71, "cm_resolve_route", ("id",)),
    Call(72, "cm_connect", ("id", *CONN_PARAM, *PRIVATE_DATA)),
    Call(73, "cm_listen", ("id", "backlog")),
    Call(74, "cm_accept", ("id", *CONN_PARAM, *PRIVATE_DATA)),
    Call(75, "cm_reject", ("id", "reason", *PRIVATE_DATA)),
    Call(76, "cm_establish", ("id",)),
    Call(77, "cm_disconnect", ("id",)),
    Call(78, "cm_notify", ("id", "event")),
    # The oldest event of a channel. ENODATA without one: its id was destroyed, or has migrated.
    # The event of a group has the group's handle. status is a signed number, as two's complement.
    Call(
        79,
        "cm_get_event",
        ("channel",),
        (
            *_words("event status id listener group"),
            *CONN_PARAM,
            "qkey",
            *AH_ATTR,
            *PRIVATE_DATA,
        ),
    ),
    Call(80, "cm_init_qp_attr", ("id", "qp_state"), ("mask", *QP_ATTR)),
    Call(81, "cm_set_option", _words("id level option value")),
    Call(82, "cm_migrate_id", ("id", "channel")),
    Call(83, "cm_join", _words("id family gid0 gid1"), ("group",)),
    Call(84, "cm_leave", ("id", "group")),
    # Put an event of a program into the channel of an id. It comes with the argument as its private
    # data.
    Call(85, "cm_write_event", _words("id event status argument")),
)
"""Every control request. Objects are named by handles, from 1 on.

They are numbers of an open device: of one context, and of those that imported it.
"""


class Field(NamedTuple):
    """A field of a record in shared memory: ``bits`` is 8, 16, 32 or 64."""

    name: str
    bits: int


class Record(NamedTuple):
    """A record in shared memory; its fields follow each other without gaps."""

    name: str
    fields: tuple[Field, ...]

    @property
    def struct(self) -> Struct:
        """The record for Python."""
        return Struct("=" + "".join(_CODES[field.bits] for field in self.fields))

    def offset(self, name: str) -> int:
        """The offset in bytes of a field."""
        before = [field.name for field in self.fields].index(name)
        return sum(field.bits for field in self.fields[:before]) // 8


_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}


def _fields(text: str) -> tuple[Field, ...]:
    """Fields of a text such as ``wr_id:64 opcode:32``."""
    pairs = (word.split(":") for word in text.split())
    return tuple(Field(name, int(bits)) for name, bits in pairs)


SGE = Record("sge", _fields("address:64 length:32 lkey:32"))
"""``ibv_sge``."""

WORK_REQUEST = Record(
    "work_request",
    _fields(
        # size: bytes of the record with what follows it, a multiple of 8. queue: the number of the
        # QP, or the handle of the SRQ. imm: immediate data as a number, or the R_Key to invalidate.
        "size:32 kind:32 queue:32 opcode:32 wr_id:64 flags:32 imm:32"
        " remote_address:64 rkey:32 sge_count:32 compare_add:64 swap:64"
        # UD: the address handle. XRC: the SRQ number. BIND_MW: window, region, access and key.
        " ah:32 remote_qpn:32 remote_qkey:32 remote_srqn:32 inline_length:32 mw:32 mr:32"
        " mw_access:32 bind_address:64 bind_length:64"
    ),
)
"""A posted work request; ``sge_count`` SGEs or ``inline_length`` bytes of data follow it.

In a record of :data:`NOTIFY_CQ` ``queue`` is the handle of the CQ, ``wr_id`` the ``consumed`` of
its ring, and ``remote_address`` how many events of the CQ the application got.
"""

COMPLETION = Record(
    "completion",
    _fields(
        # The fields of ibv_wc in its order: the library copies the first 48 bytes.
        "wr_id:64 status:32 opcode:32 vendor_err:32 byte_len:32 imm_data:32 qp_num:32 src_qp:32"
        " wc_flags:32 pkey_index:16 slid:16 sl:8 dlid_path_bits:8 reserved:16"
        # timestamp: CLOCK_REALTIME in nanoseconds, for ibv_create_cq_ex.
        " timestamp:64 srq:32 flags:32"
    ),
)
"""A completion. ``imm_data`` is big-endian as in ``ibv_wc``; for raw packets it is the tag of the
flow. ``srq`` is the handle or 0."""

COPY_REQUEST = Record("copy_request", _fields("direction:32 memory:32 mr:64 address:64 length:64"))
"""A copy that the service asks the library for, on the copy socket.

The bytes are at the start of the copy buffer. The library answers with one 32-bit errno, in host
byte order: 0, or EFAULT if the memory is not mapped.
"""

RECORDS = (SGE, WORK_REQUEST, COMPLETION, COPY_REQUEST)
"""Every record in shared memory, and that of the copy socket."""

_CONSTANTS = _words(
    "MAX_WORDS MAX_REASON RING_HEADER WORK_RING_BYTES HEAD TAIL ASLEEP PRODUCED CONSUMED ARMED"
    " ARM_ANY ARM_SOLICITED POST_SEND POST_RECV POST_SRQ_RECV NOTIFY_CQ PAD MEMORY_OF_HOST"
    " MEMORY_OF_GPU MEMORY_OF_DMABUF WINDOW_KEY_STEP MAX_INLINE_DATA MAX_SGE COPY_READ COPY_WRITE"
    " COPY_BUFFER_BYTES MAX_PRIVATE_DATA MAX_RSS_TABLE RSS_KEY_BYTES RSS_FIELDS"
    " MAX_FLOW_SPEC_BYTES COUNTED_OPERATIONS"
)


def version() -> int:
    """The version of the protocol: 64 bits of a hash of all tables. Any change changes it."""
    described = "\n".join(_declarations()).encode()
    return int.from_bytes(sha256(described).digest()[:8], "little")


def c_header() -> str:
    """The protocol as a C header: constants, an enum of the calls, and a struct for each record.

    ``struct NAME_request`` has a call's arguments and ``struct NAME_reply`` its values.
    """
    lines = [
        "/* Generated from rdmawire/verbs_service/protocol.py. Changes here are lost. */",
        "#pragma once",
        "#include <stdint.h>",
        "",
        f"#define RW_PROTOCOL {version():#x}ull",
        *_declarations(),
    ]
    return "\n".join(lines) + "\n"


def _declarations() -> Iterator[str]:
    scope = globals()
    yield from (f"#define RW_{name} {scope[name]:#x}u" for name in _CONSTANTS)
    yield "enum rw_call {"
    yield from (f"\tRW_{call.name.upper()} = {call.number}," for call in CALLS)
    yield "};"
    for call in CALLS:
        arguments = ("call", *call.request)
        yield from _struct(f"rw_{call.name}_request", ((name, 64) for name in arguments))
        yield from _struct(f"rw_{call.name}_reply", ((name, 64) for name in ("error", *call.reply)))
        fds = len(call.reply_fds)
        yield f"#define RW_{call.name.upper()}_REPLY_FDS {fds}"
    for record in RECORDS:
        yield from _struct(f"rw_{record.name}", record.fields)


def _struct(name: str, fields: Iterable[tuple[str, int]]) -> Iterator[str]:
    yield f"struct {name} {{"
    yield from (f"\tuint{bits}_t {field};" for field, bits in fields)
    yield "};"
