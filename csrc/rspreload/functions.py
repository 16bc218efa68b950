"""``librspreload.so``, which LD_PRELOAD puts before the C library: its functions have no versions.

The library has no number: rdma-core's is called so, too.
"""

SONAME = "librspreload.so"
HEADER = "rdma/rsocket.h"
"""The header that the library is compiled with."""
PACKAGES = "librdmacm-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL)"
LINK = ("rdmacm", "ibverbs")
"""Libraries that are built before, and linked."""
