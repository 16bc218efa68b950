"""Active messages of UCX on the wire: the headers of uct_rc and of UCP's tag protocols.

A message is a SEND: the header of the transport with the id of the active message, then the header
of the protocol, then data or a packed remote key. All numbers are little-endian, as the structures
of a host are (UCX: ``uct/ib/rc/base/rc_iface.h``, ``ucp/tag/eager.h``, ``ucp/rndv/rndv.h``,
``ucp/proto/proto_am.h``, ``ucp/core/ucp_rkey.c``).
"""

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from rdmawire.errors import WireError


class AmId(IntEnum):
    """Ids of active messages that tag messages use: ``ucp_am_id_t``."""

    EAGER_ONLY = 2
    EAGER_FIRST = 3
    EAGER_MIDDLE = 4
    RNDV_RTS = 9
    RNDV_ATS = 10
    RNDV_RTR = 11
    RNDV_ATP = 16
    AM_SINGLE = 23


class MemoryType(IntEnum):
    """Memory of a buffer: ``ucs_memory_type_t``."""

    HOST = 0
    CUDA = 1


class EagerHeader(NamedTuple):
    """A message in one SEND; the data follows: ``ucp_eager_hdr_t``."""

    tag: int


class EagerFirstHeader(NamedTuple):
    """The first fragment of ``total_len`` bytes: ``ucp_eager_first_hdr_t``."""

    tag: int
    total_len: int
    msg_id: int


class EagerMiddleHeader(NamedTuple):
    """A later fragment, with its offset in the message: ``ucp_eager_middle_hdr_t``."""

    msg_id: int
    offset: int


class RtsHeader(NamedTuple):
    """Ready to send: ``size`` bytes at ``address``, whose remote key follows.

    ``ucp_rndv_rts_hdr_t``, with its ``ucp_request_hdr_t`` of endpoint and request. ``opcode`` is 0
    for a tag message.
    """

    tag: int
    ep_id: int
    req_id: int
    address: int
    size: int
    opcode: int = 0


class RtrHeader(NamedTuple):
    """Ready to receive: bytes from ``offset`` on may be written to ``address``; a key follows.

    ``ucp_rndv_rtr_hdr_t``. ``sreq_id`` and ``rreq_id`` are the requests of sender and receiver.
    """

    sreq_id: int
    rreq_id: int
    address: int
    size: int
    offset: int


class AckHeader(NamedTuple):
    """Acknowledgment of ``size`` bytes that were read (ATS) or written (ATP).

    ``ucp_rndv_ack_hdr_t``; ``status`` is 0 for UCS_OK.
    """

    req_id: int
    status: int
    size: int


class AmHeader(NamedTuple):
    """A message of the application, with a header of ``header_length`` bytes at its end.

    ``ucp_am_hdr_t``: ``am_id`` is the application's own id.
    """

    am_id: int
    flags: int
    header_length: int


UcpHeader = (
    EagerHeader
    | EagerFirstHeader
    | EagerMiddleHeader
    | RtsHeader
    | RtrHeader
    | AckHeader
    | AmHeader
)
"""The header of any message."""

_LAYOUTS: Final[Mapping[type[UcpHeader], Struct]] = {
    EagerHeader: Struct("<Q"),
    EagerFirstHeader: Struct("<QQQ"),
    EagerMiddleHeader: Struct("<QQ"),
    RtsHeader: Struct("<QQQQQB"),
    RtrHeader: Struct("<QQQQQ"),
    AckHeader: Struct("<QbQ"),
    AmHeader: Struct("<HHI"),
}
HEADERS: Final[Mapping[AmId, type[UcpHeader]]] = {
    AmId.EAGER_ONLY: EagerHeader,
    AmId.EAGER_FIRST: EagerFirstHeader,
    AmId.EAGER_MIDDLE: EagerMiddleHeader,
    AmId.RNDV_RTS: RtsHeader,
    AmId.RNDV_ATS: AckHeader,
    AmId.RNDV_RTR: RtrHeader,
    AmId.RNDV_ATP: AckHeader,
    AmId.AM_SINGLE: AmHeader,
}
"""The header of each message."""


class UctTransport(NamedTuple):
    """A transport of UCT: its name, and the bytes before the id of an active message."""

    name: str
    prefix: bytes

    @property
    def header_size(self) -> int:
        """Bytes before the header of the protocol."""
        return len(self.prefix) + 1


TRANSPORTS: Final[Mapping[str, UctTransport]] = {
    "rc_verbs": UctTransport("rc_verbs", b""),
    "rc_mlx5": UctTransport("rc_mlx5", b"\0"),
}
"""``uct_rc_hdr_t``, and ``uct_rc_mlx5_hdr_t`` with the opcode of hardware tag matching before it.

That opcode is IBV_TMH_NO_TAG, 0, without tag matching by the adapter.
"""


class ActiveMessage(NamedTuple):
    """An active message: its id, its header, and the bytes after the header."""

    am_id: AmId
    header: UcpHeader
    rest: bytes = b""

    def build(self, transport: UctTransport) -> bytes:
        """Return the bytes of the SEND."""
        layout = _LAYOUTS[type(self.header)]
        return transport.prefix + bytes([self.am_id]) + layout.pack(*self.header) + self.rest

    @classmethod
    def parse(cls, data: bytes, transport: UctTransport) -> "ActiveMessage":
        """Read a SEND; :class:`WireError` for an id that has no header here, and for few bytes."""
        start = transport.header_size
        if data[: start - 1] != transport.prefix or len(data) < start:
            raise WireError(f"{data[:start].hex(' ')!r} is no header of {transport.name}")
        try:
            am_id = AmId(data[start - 1])
        except ValueError:
            raise WireError(f"{data[start - 1]} is no id of an active message") from None
        kind = HEADERS[am_id]
        layout = _LAYOUTS[kind]
        end = start + layout.size
        if len(data) < end:
            raise WireError(
                f"{len(data) - start} bytes after {am_id.name}; its header has {layout.size}"
            )
        return cls(am_id, kind(*layout.unpack(data[start:end])), data[end:])


def header_size(am_id: AmId) -> int:
    """Return the bytes of the header of a message."""
    return _LAYOUTS[HEADERS[am_id]].size


_NO_ATOMIC_KEY: Final = 0xFFFF_FFFF
_UNKNOWN_DEVICE: Final = 0xFF
_KEY_SIZE: Final = 8
_KEY_HEAD: Final = Struct("<QB")
_KEY: Final = Struct("<BIIB")


class PackedKey(NamedTuple):
    """The key of remote memory of a type: ``ucp_rkey_pack_memh``.

    It has a key of one memory domain of InfiniBand, or with ``rkey`` ``None`` of none. The device
    that has the memory is packed as unknown, so that no distances follow.
    """

    memory_type: MemoryType
    rkey: int | None

    def build(self) -> bytes:
        """Return the bytes of the packed key."""
        head = _KEY_HEAD.pack(0 if self.rkey is None else 1, self.memory_type)
        if self.rkey is None:
            return head
        return head + _KEY.pack(_KEY_SIZE, self.rkey, _NO_ATOMIC_KEY, _UNKNOWN_DEVICE)

    @classmethod
    def parse(cls, data: bytes) -> "PackedKey":
        """Read a packed key; :class:`WireError` if it is none of one memory domain or of none."""
        if len(data) < _KEY_HEAD.size:
            raise WireError(f"{len(data)} bytes are no packed key")
        domains, memory = _KEY_HEAD.unpack_from(data)
        rest = data[_KEY_HEAD.size :]
        if domains > 1 or memory > max(MemoryType) or len(rest) != _KEY.size * domains:
            raise WireError(f"{data.hex(' ')}: no packed key of one memory domain")
        if not domains:
            return cls(MemoryType(memory), None)
        size, rkey, _, _ = _KEY.unpack(rest)
        if size != _KEY_SIZE:
            raise WireError(f"a key of {size} bytes; those of InfiniBand have {_KEY_SIZE}")
        return cls(MemoryType(memory), rkey)


_RANK_BITS: Final = 20
_CONTEXT_BITS: Final = 20
MAX_MPI_TAG: Final = (1 << 23) - 1
MAX_RANK: Final = (1 << _RANK_BITS) - 1
MAX_CONTEXT: Final = (1 << _CONTEXT_BITS) - 1


def mpi_tag(tag: int, rank: int = 0, context: int = 0) -> int:
    """Return UCP's tag of a message of MPI: its tag, the rank of its sender, its communicator.

    As Open MPI builds it (``ompi/mca/pml/ucx/pml_ucx_request.h``): 24, 20 and 20 bits.
    """
    return tag << (_RANK_BITS + _CONTEXT_BITS) | rank << _CONTEXT_BITS | context
