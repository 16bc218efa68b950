"""How a connection manager behaves, and what two ends agree upon.

Defaults are those of Linux's rdma_cm, so that a peer sees what it is used to.
"""

from errno import EINVAL
from typing import NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.memory.argument import check_kind, check_number
from rdmawire.nic.cm.service import RDMA_UDP_QKEY
from rdmawire.wire.management import MTU
from rdmawire.wire.psn import MODULUS

TIME_UNIT = 4_096
"""Nanoseconds that the standard's exponents multiply. IBA 12.7.19."""

LONGEST_EXPONENT = 24
"""No wait is longer than 68.7 s, whatever a peer asks for."""


def duration(exponent: int) -> int:
    """Nanoseconds that an exponent stands for: 4.096 us times two to it, within bounds."""
    return TIME_UNIT << min(exponent, LONGEST_EXPONENT)


def ack_timeout(packet_life: int, ack_delay: int) -> int:
    """The exponent of the Local ACK Timeout: there and back, and the peer's delay. IBA 12.7.34.

    As rdma_cm does it, the sum goes to the nearer power of two.
    """
    total = (2 << packet_life) + (1 << ack_delay)
    return min((total * 4 // 3).bit_length() - 1, 31)


class CMSettings(NamedTuple):
    """Timeouts are exponents (:func:`duration`).

    ``most_connections`` counts all that the manager keeps, those in timewait too.
    """

    response_timeout: int = 20
    max_cm_retries: int = 15
    mra_timeout: int = 24
    packet_life: int = 18
    path_mtu: MTU = MTU.OCTETS_1024
    most_connections: int = 1 << 14

    def check(self) -> None:
        """``VerbsError`` EINVAL for a number that fits no message."""
        for name, most in _MOST_OF_SETTINGS.items():
            check_number(name, getattr(self, name), 0, most)
        check_number("path_mtu", self.path_mtu, MTU.OCTETS_256, MTU.OCTETS_4096)


_MOST_OF_SETTINGS = {
    "response_timeout": 31,
    "max_cm_retries": 15,
    "mra_timeout": 31,
    "packet_life": 31,
    "most_connections": 1 << 32,
}


class ConnParam(NamedTuple):
    """What one side offers, as rdma_conn_param has it.

    ``None`` for a depth takes as much as the peer and the adapter allow. ``path_mtu`` is for
    requests, ``None`` for the settings' own. ``qkey`` is that of datagrams. ``psn`` is the first
    that this side will expect of the peer, drawn if it is ``None``. ``timeout`` is the exponent of
    this side's queue pair (RDMA_OPTION_ID_ACK_TIMEOUT of rdma_set_option(3)), ``None`` for the one
    that follows from the path.
    """

    private_data: bytes = b""
    responder_resources: int | None = None
    initiator_depth: int | None = None
    flow_control: bool = False
    retry_count: int = 7
    rnr_retry_count: int = 7
    srq: bool = False
    path_mtu: MTU | None = None
    qkey: int = RDMA_UDP_QKEY
    psn: int | None = None
    timeout: int | None = None

    def check(self, room: int) -> None:
        """``VerbsError`` EINVAL for what does not fit a message with so many private octets."""
        check_kind("private_data", self.private_data, bytes)
        if len(self.private_data) > room:
            found = len(self.private_data)
            raise VerbsError(f"private_data has {found} octets, here is room for {room}", EINVAL)
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_LEFT_OUT:
                check_number(name, value, 0, most)


_MOST = {
    "responder_resources": 0xFF,
    "initiator_depth": 0xFF,
    "retry_count": 7,
    "rnr_retry_count": 7,
    "path_mtu": MTU.OCTETS_4096,
    "qkey": 0xFFFF_FFFF,
    "flow_control": 1,
    "srq": 1,
    "psn": MODULUS - 1,
    "timeout": 31,
}

_MAY_BE_LEFT_OUT = ("responder_resources", "initiator_depth", "path_mtu", "psn", "timeout")


class Terms(NamedTuple):
    """What the queue pair of this side needs to know, agreed upon by both.

    ``rq_psn`` is this side's starting PSN, ``sq_psn`` the peer's: each says what it will expect
    (IBA 12.7.31). ``timeout`` is an exponent.
    """

    remote_qpn: int = 0
    rq_psn: int = 0
    sq_psn: int = 0
    path_mtu: int = MTU.OCTETS_1024
    responder_resources: int = 0
    initiator_depth: int = 0
    timeout: int = 0
    retry_count: int = 0
    rnr_retry_count: int = 0
