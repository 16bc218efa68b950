"""The programs of rdmacm-utils, which connect by librdmacm."""

from collections.abc import Iterator
from dataclasses import replace

from tools.acceptance.case import Case, Package

PACKAGE = Package("rdmacm-utils", "rdmacm-utils")
_GROUP = "239.1.2.3"
_PAIRS = (
    (
        "rping -C 100 -V",
        "RC",
        "rping -s -a {address} -C 100 -V -v",
        "rping -c -I {own_address} -a {address} -C 100 -V -v",
    ),
    (
        "rping -C 100 -V -S 65536 -q",
        "RC",
        "rping -s -a {address} -C 100 -V -S 65000 -q",
        "rping -c -I {own_address} -a {address} -C 100 -V -S 65000 -q",
    ),
    ("ucmatose", "RC", "ucmatose -b {address}", "ucmatose -b {own_address} -s {address}"),
    (
        "ucmatose -c 32 -C 50 -S 4096",
        "RC",
        "ucmatose -b {address} -c 32 -C 50 -S 4096",
        "ucmatose -b {own_address} -s {address} -c 32 -C 50 -S 4096",
    ),
    ("ucmatose -m", "RC", "ucmatose -b {address} -m", "ucmatose -b {own_address} -s {address} -m"),
    ("udaddy", "UD", "udaddy -b {address}", "udaddy -b {own_address} -s {address}"),
    (
        "udaddy -c 16 -C 50",
        "UD",
        "udaddy -b {address} -c 16 -C 50",
        "udaddy -b {own_address} -s {address} -c 16 -C 50",
    ),
    (
        "mckey",
        "UD, multicast",
        f"mckey -b {{address}} -m {_GROUP}",
        f"mckey -b {{own_address}} -m {_GROUP} -s",
    ),
    (
        "udaddy -p 0x0002",
        "UD, RDMA_PS_IPOIB",
        "udaddy -b {address} -p 0x0002",
        "udaddy -b {own_address} -s {address} -p 0x0002",
    ),
    (
        "mckey -p 0x0002",
        "UD, RDMA_PS_IPOIB",
        f"mckey -b {{address}} -m {_GROUP} -p 0x0002",
        f"mckey -b {{own_address}} -m {_GROUP} -s -p 0x0002",
    ),
    ("rdma_client", "RC", "rdma_server -s {address}", "rdma_client -s {address}"),
    ("rdma_xclient", "RC", "rdma_xserver -c r", "rdma_xclient -s {address} -c r"),
    ("rdma_xclient -c x", "XRC", "rdma_xserver -c x", "rdma_xclient -s {address} -c x"),
    (
        "cmtime -c 100",
        "RC",
        "cmtime -b {address} -c 100",
        "cmtime -b {own_address} -s {address} -c 100",
    ),
)
"""Program, transport, server, client."""


_RSOCKETS = (
    ("rstream", "-T v -S 65536 -C 20 -I 20"),
    ("rstream", "-T v -T n -S 1000 -C 50 -I 20"),
    ("rstream", "-T v -T a -S 1000000 -C 2 -I 5"),
    ("rstream", "-T v -T r -S 4096 -C 20 -I 20"),
    ("riostream", "-T v -S 65536 -C 20 -I 20"),
    ("riostream", "-T v -T n -S 1000 -C 20 -I 20"),
    ("udpong", "-S 1000 -C 300"),
    ("udpong", "-T n -S 64 -C 300"),
)
"""Program and options; ``-T v`` compares the data."""
_LOSSY = "loss=0.001,seed=1"
_PRELOAD = "LD_PRELOAD=$LD_PRELOAD:librspreload.so"


def cases() -> Iterator[Case]:
    """Yield all runs."""
    for options, transport, server, client in _PAIRS:
        yield _pair(options, transport, server, client)
    yield replace(_pair(*_PAIRS[0]), joined=True)
    for program, options in _RSOCKETS:
        yield rsocket(program, options)
    yield replace(rsocket(*_RSOCKETS[0]), joined=True)
    yield replace(rsocket(*_RSOCKETS[0]), network=_LOSSY)
    yield _preloaded("rstream", "-T s -T v -S 4096 -C 20 -I 20")
    yield Case(
        PACKAGE,
        "rcopy, 3,000,000 bytes",
        'sh -c "rcopy sent {address}:{folder}/copy && cmp sent copy && echo the same bytes"',
        "rcopy",
        prepare="sh -c 'head -c 3000000 /dev/urandom > sent'",
        transport="rsocket",
        expect="the same bytes",
        server_ends=False,
    )


def rsocket(program: str, options: str) -> Case:
    """Return a run of two programs that use rsockets, and compare their data with ``-T v``."""
    return Case(
        PACKAGE,
        f"{program} {options}",
        f"{program} -s {{address}} {options}",
        f"{program} -b {{address}} {options}",
        transport="rsocket",
        expect=r"custom\s",
        server_ends=program != "udpong",
    )


def _preloaded(program: str, options: str) -> Case:
    """Return a run of a program that uses sockets, which librspreload makes rsockets."""
    case = rsocket(program, options)
    client, server = (f"sh -c '{_PRELOAD} exec {one}'" for one in (case.client, case.server))
    options = f"LD_PRELOAD=librspreload.so {case.options}"
    return replace(case, options=options, client=client, server=server)


def _pair(options: str, transport: str, server: str, client: str) -> Case:
    ends = not options.startswith("cmtime")  # its server serves until it is ended
    return Case(PACKAGE, options, client, server, transport=transport, server_ends=ends)
