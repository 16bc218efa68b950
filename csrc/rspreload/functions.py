"""The functions of ``librspreload.so``, which LD_PRELOAD puts before those of the C library.

They have no versions, and the library no number: rdma-core's is called so, too. This module imports
the standard library alone.
"""

from collections.abc import Iterator
from typing import NamedTuple

SONAME = "librspreload.so"
HEADER = "rdma/rsocket.h"
"""The header that the library is compiled with."""
PACKAGES = "librdmacm-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL)"
LINK = ("rdmacm", "ibverbs")
"""Libraries that are built before, and linked."""

_NAMES = (
    "socket bind listen accept accept4 connect shutdown close recv recvfrom recvmsg send sendto"
    " sendmsg read readv write writev __read_chk __recv_chk __recvfrom_chk poll ppoll __poll_chk"
    " __ppoll_chk select pselect getpeername getsockname getsockopt setsockopt fcntl fcntl64 ioctl"
    " dup dup2 dup3 sendfile sendfile64 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait"
)


class Export(NamedTuple):
    """A function without a version."""

    name: str
    version: str = ""
    refusal: None = None
    default: bool = True


def exports() -> Iterator[Export]:
    """Yield all functions."""
    return map(Export, _NAMES.split())
