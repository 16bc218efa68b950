"""DDP: the tagged buffer or the queue that the payload of a segment goes to. RFC 5041.

The bytes that DDP reserves for its ULP (RsvdULP) are declared in RDMAP's tables: one byte
between the control field and the rest of a tagged header, five of an untagged one.
"""

from rdmawire.wire.header import Header, bits, flag
from rdmawire.wire.show import HEX, PRESENCE

VERSION = 1
"""The version of DDP in use. RFC 5041, 4.1."""


class DDPControl(
    Header, clause="RFC 5041, 4.1", wireshark="iwarp_ddp.control_field", label="ddp", show=PRESENCE
):
    """DDP control field: ``t`` tagged buffer model, ``l`` last segment of its message."""

    t: int = flag("iwarp_ddp.tagged_flag")
    l: int = flag("iwarp_ddp.last_flag")  # noqa: E741 - the standard's name
    rsvd: int = bits(4, "iwarp_ddp.rsvd", HEX)
    dv: int = bits(2, "iwarp_ddp.dv", default=VERSION)


class TaggedHeader(
    Header, clause="RFC 5041, 4.2", wireshark="iwarp_ddp.tagged", label="ddp_tagged", show=PRESENCE
):
    """The end of a tagged header: which buffer, and where in it the payload goes."""

    stag: int = bits(32, "iwarp_ddp.stag", HEX)
    to: int = bits(64, "iwarp_ddp.tagged_offset", HEX)


class UntaggedHeader(
    Header,
    clause="RFC 5041, 4.3",
    wireshark="iwarp_ddp.untagged",
    label="ddp_untagged",
    show=PRESENCE,
):
    """The end of an untagged header: which message of which queue, and where in it."""

    qn: int = bits(32, "iwarp_ddp.qn")
    msn: int = bits(32, "iwarp_ddp.msn")
    mo: int = bits(32, "iwarp_ddp.mo")
