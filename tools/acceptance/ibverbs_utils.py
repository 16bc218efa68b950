"""The programs of ibverbs-utils."""

from collections.abc import Iterator
from dataclasses import replace

from tools.acceptance.case import Case, Package

PACKAGE = Package("ibverbs-utils", "ibverbs-utils")
_PORT = 18600
_PINGPONGS = (
    ("ibv_rc_pingpong", "RC", "-c"),
    ("ibv_rc_pingpong", "RC", "-c -e"),
    ("ibv_rc_pingpong", "RC", "-c -N"),
    ("ibv_rc_pingpong", "RC", "-t"),
    ("ibv_rc_pingpong", "RC", "-c -N -e -s 65536 -m 4096"),
    ("ibv_rc_pingpong", "RC", "-c -s 1"),
    ("ibv_rc_pingpong", "RC", "-c -o"),
    ("ibv_rc_pingpong", "RC", "-c -o -P"),
    ("ibv_rc_pingpong", "RC", "-c -j"),
    ("ibv_uc_pingpong", "UC", "-c"),
    ("ibv_uc_pingpong", "UC", "-c -e"),
    ("ibv_ud_pingpong", "UD", "-c"),
    ("ibv_ud_pingpong", "UD", "-c -e"),
    ("ibv_srq_pingpong", "RC, SRQ", "-c"),
    ("ibv_srq_pingpong", "RC, SRQ", "-c -e -q 16"),
    ("ibv_xsrq_pingpong", "XRC", ""),
    ("ibv_xsrq_pingpong", "XRC", "-e"),
)
"""Program, transport, options. ``-c`` compares what was received with what was sent."""


def pingpong(program: str, transport: str, options: str) -> Case:
    """Return the run of a pingpong program."""
    count = "" if program == "ibv_xsrq_pingpong" else "-n 200 "
    shared = f"-p {_PORT} -g 0 {count}{options}"
    return Case(
        PACKAGE,
        f"{program} -g 0 {options}".rstrip(),
        f"{program} -d {{client}} {shared} 127.0.0.1",
        f"{program} -d {{server}} {shared}",
        transport=transport,
        port=_PORT,
    )


def cases() -> Iterator[Case]:
    """Yield all runs."""
    yield Case(PACKAGE, "ibv_devices", "ibv_devices", expect=r"rw0\s+[0-9a-f]{16}", frames=False)
    yield Case(PACKAGE, "ibv_devinfo", "ibv_devinfo", expect="PORT_ACTIVE", frames=False)
    yield Case(PACKAGE, "ibv_devinfo -v", "ibv_devinfo -v", expect="RoCE v2", frames=False)
    yield Case(
        PACKAGE,
        "ibv_asyncwatch",
        "ibv_devices",
        "ibv_asyncwatch -d {server}",
        frames=False,
        server_ends=False,
    )
    for row in _PINGPONGS:
        yield pingpong(*row)
    yield replace(pingpong("ibv_rc_pingpong", "RC", "-c"), joined=True)
    yield replace(pingpong("ibv_rc_pingpong", "RC", "-c"), network="loss=0.01,seed=1")
