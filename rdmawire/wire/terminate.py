"""The Terminate message of RDMAP: the error that ends a stream, and the headers that caused it.

The error codes are those of the layer that found the error: RDMAP's in RFC 5040 section 4.8,
DDP's in RFC 5041 section 7.2, MPA's in RFC 5044 section 8 and RFC 6581 section 8.
"""

from enum import IntEnum

from rdmawire.wire.header import Header, Meaning, bits, choice, flag, group
from rdmawire.wire.show import DIGITS, HEX, PRESENCE


class Layer(IntEnum):
    """The layer that found the error. RFC 5040, 4.8."""

    RDMA = 0
    DDP = 1
    LLP = 2


class RDMAErrorType(IntEnum):
    """Error types of RDMAP. RFC 5040, 4.8."""

    LOCAL_CATASTROPHIC_ERROR = 0
    REMOTE_PROTECTION_ERROR = 1
    REMOTE_OPERATION_ERROR = 2


class DDPErrorType(IntEnum):
    """Error types of DDP. RFC 5041, 7.2."""

    LOCAL_CATASTROPHIC_ERROR = 0
    TAGGED_BUFFER_ERROR = 1
    UNTAGGED_BUFFER_ERROR = 2
    RESERVED_FOR_LLP = 3


class LLPErrorType(IntEnum):
    """Error types of the layer below. RFC 5044, 8."""

    MPA_ERROR = 0


class RDMAError(IntEnum):
    """Error codes of RDMAP, one numbering for all its types. RFC 5040, 4.8."""

    INVALID_STAG = 0x00
    BASE_OR_BOUNDS_VIOLATION = 0x01
    ACCESS_RIGHTS_VIOLATION = 0x02
    STAG_NOT_ASSOCIATED_WITH_RDMAP_STREAM = 0x03
    TO_WRAP = 0x04
    INVALID_RDMAP_VERSION = 0x05
    UNEXPECTED_OPCODE = 0x06
    CATASTROPHIC_ERROR_LOCALIZED_TO_RDMAP_STREAM = 0x07
    CATASTROPHIC_ERROR_GLOBAL = 0x08
    STAG_CANNOT_BE_INVALIDATED = 0x09
    UNSPECIFIED_ERROR = 0xFF


class TaggedError(IntEnum):
    """Error codes of DDP's tagged buffer errors. RFC 5041, 7.2."""

    INVALID_STAG = 0x00
    BASE_OR_BOUNDS_VIOLATION = 0x01
    STAG_NOT_ASSOCIATED_WITH_DDP_STREAM = 0x02
    TO_WRAP = 0x03
    INVALID_DDP_VERSION = 0x04


class UntaggedError(IntEnum):
    """Error codes of DDP's untagged buffer errors. RFC 5041, 7.2."""

    INVALID_QN = 0x01
    INVALID_MSN_NO_BUFFER_AVAILABLE = 0x02
    INVALID_MSN_RANGE_IS_NOT_VALID = 0x03
    INVALID_MO = 0x04
    DDP_MESSAGE_TOO_LONG_FOR_AVAILABLE_BUFFER = 0x05
    INVALID_DDP_VERSION = 0x06


class MPAError(IntEnum):
    """Error codes of MPA. RFC 5044, 8; from 5 on RFC 6581, 8."""

    TCP_CONNECTION_CLOSED_TERMINATED_OR_LOST = 0x01
    CRC_ERROR = 0x02
    MARKER_AND_ULPDU_LENGTH_MISMATCH = 0x03
    INVALID_REQUEST_OR_REPLY_FRAME = 0x04
    LOCAL_CATASTROPHIC_ERROR = 0x05
    INSUFFICIENT_IRD_RESOURCES = 0x06
    NO_MATCHING_RTR_OPTION = 0x07


_ERROR_TYPES: dict[int, Meaning] = {
    Layer.RDMA: Meaning("iwarp_rdma.term_etype_rdma", HEX, RDMAErrorType),
    Layer.DDP: Meaning("iwarp_rdma.term_etype_ddp", HEX, DDPErrorType),
    Layer.LLP: Meaning("iwarp_rdma.term_etype_llp", HEX, LLPErrorType),
}

_ERRORS: dict[int, Meaning] = {
    **dict.fromkeys((1, 2), Meaning("iwarp_rdma.term_errcode_rdma", HEX, RDMAError)),
    Layer.DDP << 4 | DDPErrorType.TAGGED_BUFFER_ERROR: Meaning(
        "iwarp_rdma.term_errcode_ddp_tagged", HEX, TaggedError
    ),
    Layer.DDP << 4 | DDPErrorType.UNTAGGED_BUFFER_ERROR: Meaning(
        "iwarp_rdma.term_errcode_ddp_untagged", HEX, UntaggedError
    ),
    Layer.LLP << 4 | LLPErrorType.MPA_ERROR: Meaning("iwarp_rdma.term_errcode_llp", HEX, MPAError),
}


class TerminateControl(
    Header,
    clause="RFC 5040, 4.8",
    wireshark="iwarp_rdma.term_ctrl",
    label="rdmap_terminate",
    show=PRESENCE,
):
    """Terminate control field: ``m`` the length is valid, ``d`` and ``r`` the headers follow."""

    error_kind: int = group("", "layer", "etype", show=HEX)
    layer: int = bits(4, "iwarp_rdma.term_layer", HEX, enum=Layer)
    etype: int = choice(4, "layer", _ERROR_TYPES, "iwarp_rdma.term_etype", HEX)
    error_code: int = choice(8, "error_kind", _ERRORS, "iwarp_rdma.term_errcode", HEX)
    m: int = flag("iwarp_rdma.term_hdrct_m")
    d: int = flag("iwarp_rdma.hdrct_d")
    r: int = flag("iwarp_rdma.hdrct_r")
    reserved: int = bits(13, "iwarp_rdma.term_rsvd", HEX)


_MIRRORED_FLAGS = 0x0700


def is_mirrored(control: TerminateControl) -> bool:
    """Whether this looks like a control field with the bit fields of each byte in reverse order.

    Linux's siw fills bit fields from the low end on little-endian machines: layer and error type
    are exchanged, and the flags are in the reserved bits.
    """
    flags = control.m | control.d | control.r
    return not flags and control.reserved != 0 and not control.reserved & ~_MIRRORED_FLAGS


def mirrored(control: TerminateControl) -> TerminateControl:
    """Return the control field that the sender of a mirrored one intended."""
    flags = control.reserved >> 8
    return TerminateControl(
        layer=control.etype,
        etype=control.layer,
        error_code=control.error_code,
        m=flags & 1,
        d=flags >> 1 & 1,
        r=flags >> 2 & 1,
    )


class TerminatedLength(Header, clause="RFC 5040, 4.8", label="rdmap_terminated_length"):
    """Length of the DDP segment with the error, as it came up from DDP."""

    bytes: int = group("iwarp_rdma.term_ddp_seg_len", "ddp_segment_length", show=DIGITS)
    ddp_segment_length: int = bits(16)


class TerminatedSegment(Header, abstract=True):
    """What both kinds of DDP header begin with, RDMAP's control field included."""

    t: int = flag()
    l: int = flag()  # noqa: E741 - the standard's name
    rsvd: int = bits(4, "", HEX)
    dv: int = bits(2)
    rv: int = bits(2)
    rsv: int = bits(2, "", HEX)
    opcode: int = bits(4, "", HEX)


class TerminatedTagged(TerminatedSegment, clause="RFC 5040, 4.8", label="rdmap_terminated_tagged"):
    """The tagged DDP header of the segment with the error."""

    bytes: int = group("iwarp_rdma.term_ddp_h", "t", ..., "to", show=DIGITS)
    stag: int = bits(32, "", HEX)
    to: int = bits(64, "", HEX)


class TerminatedUntagged(
    TerminatedSegment, clause="RFC 5040, 4.8", label="rdmap_terminated_untagged"
):
    """The untagged DDP header of the segment with the error."""

    bytes: int = group("iwarp_rdma.term_ddp_h", "t", ..., "mo", show=DIGITS)
    invalidate_stag: int = bits(32, "", HEX)
    qn: int = bits(32)
    msn: int = bits(32)
    mo: int = bits(32)


class TerminatedReadRequest(Header, clause="RFC 5040, 4.8", label="rdmap_terminated_read"):
    """The header of the RDMA Read Request with the error."""

    bytes: int = group("iwarp_rdma.term_rdma_h", "sink_stag", ..., "source_to", show=DIGITS)
    sink_stag: int = bits(32, "", HEX)
    sink_to: int = bits(64, "", HEX)
    rdma_read_message_size: int = bits(32)
    source_stag: int = bits(32, "", HEX)
    source_to: int = bits(64, "", HEX)


class TerminatedAtomicRequest(Header, clause="RFC 7306, 8.2", label="rdmap_terminated_atomic"):
    """The header of the Atomic Request with the error."""

    bytes: int = group("iwarp_rdma.term_rdma_h", "reserved", ..., "compare_mask", show=DIGITS)
    reserved: int = bits(28, "", HEX)
    aopcode: int = bits(4)
    request_identifier: int = bits(32)
    remote_stag: int = bits(32, "", HEX)
    remote_to: int = bits(64, "", HEX)
    data: int = bits(64)
    mask: int = bits(64, "", HEX)
    compare_data: int = bits(64)
    compare_mask: int = bits(64, "", HEX)
