"""The programs of perftest: bandwidth and latency of each operation, on each transport."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tools.acceptance.case import Case, Package

PACKAGE = Package("perftest", "perftest")
_PORT = 18700
_GROUP = "0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3"
"""An IPv4 address, as that of the device: perftest refuses groups of other kinds."""
_FIGURE = r"\n\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+[^\n]*\n-+"
_LENGTH: Final = re.compile("-[nD] ")
_SHORT: Final = " -n 500"
_RUNS = (
    ("ib_write_bw", "RC", ""),
    ("ib_write_bw", "RC", "-a -n 10"),
    ("ib_write_bw", "RC", "-b"),
    ("ib_write_bw", "RC", "-q 4"),
    ("ib_write_bw", "RC", "-l 16 -n 512"),
    ("ib_write_bw", "RC", "-s 8 -n 20000"),
    ("ib_write_bw", "RC", "-s 64 -I 64"),
    ("ib_write_bw", "RC", "-Q 16 -m 1024"),
    ("ib_write_bw", "RC", "-D 1"),
    ("ib_write_bw", "RC", "--use_old_post_send"),
    ("ib_write_bw", "UC", "-c UC"),
    ("ib_write_bw", "XRC", "-c XRC"),
    ("ib_write_lat", "RC", ""),
    ("ib_write_lat", "RC", "-a -n 10"),
    ("ib_write_lat", "RC", "-I 0"),
    ("ib_write_lat", "UC", "-c UC"),
    ("ib_write_lat", "XRC", "-c XRC"),
    ("ib_read_bw", "RC", ""),
    ("ib_read_bw", "RC", "-a -n 10"),
    ("ib_read_bw", "RC", "-e -b"),
    ("ib_read_bw", "RC", "-q 4 -o 4"),
    ("ib_read_bw", "XRC", "-c XRC"),
    ("ib_read_lat", "RC", ""),
    ("ib_read_lat", "RC", "-a -n 10 -e"),
    ("ib_send_bw", "RC", ""),
    ("ib_send_bw", "RC", "-a -n 10"),
    ("ib_send_bw", "RC", "-e"),
    ("ib_send_bw", "RC", "-b"),
    ("ib_send_bw", "RC", "-q 4"),
    ("ib_send_bw", "RC, SRQ", "--use-srq -q 4"),
    ("ib_send_bw", "RC", "-l 16 --recv_post_list=16 -n 512"),
    ("ib_send_bw", "UC", "-c UC"),
    ("ib_send_bw", "UD", "-c UD"),
    ("ib_send_bw", "UD", "-c UD -e -b"),
    ("ib_send_bw", "UD, multicast", f"-c UD -g -s 2048 -M {_GROUP}"),
    ("ib_send_bw", "XRC", "-c XRC"),
    ("ib_send_bw", "XRC", "-c XRC -q 4 -e"),
    ("ib_write_bw", "RC", "--odp"),
    ("ib_send_lat", "RC", ""),
    ("ib_send_lat", "RC", "-a -n 10"),
    ("ib_send_lat", "RC", "-e"),
    ("ib_send_lat", "RC, SRQ", "--use-srq"),
    ("ib_send_lat", "UC", "-c UC"),
    ("ib_send_lat", "UD", "-c UD"),
    ("ib_send_lat", "UD", "-c UD -e"),
    ("ib_send_lat", "XRC", "-c XRC"),
    ("ib_atomic_bw", "RC", ""),
    ("ib_atomic_bw", "RC", "-A CMP_AND_SWAP -e"),
    ("ib_atomic_bw", "RC", "-b -q 4"),
    ("ib_atomic_bw", "XRC", "-c XRC"),
    ("ib_atomic_lat", "RC", ""),
    ("ib_atomic_lat", "RC", "-A CMP_AND_SWAP"),
)
"""Program, transport, options."""
_BY_CM = (
    ("ib_write_bw", "RC", "-R"),
    ("ib_write_lat", "RC", "-R"),
    ("ib_read_bw", "RC", "-R"),
    ("ib_send_bw", "RC", "-R -q 4"),
    ("ib_send_lat", "UD", "-R -c UD"),
    ("ib_atomic_bw", "RC", "-R"),
    ("ib_write_bw", "RC", "-z"),
)
"""Runs that connect by librdmacm."""
_LOSSY = "loss=0.001,seed=1"
_SCENARIOS = "tools/acceptance/scenarios"
COUNTERS = (
    ("ib_write_bw", "", "packet_seq_err=[1-9][0-9]*", _LOSSY),
    ("ib_read_bw", "", "implied_nak_seq_err=[1-9][0-9]*", _LOSSY),
    ("ib_write_bw", "", "packet_seq_err=1", f"{_SCENARIOS}/lost-packet.yaml"),
    ("ib_write_bw", "--tclass=106", "rp_cnp_handled=[1-9][0-9]*", f"{_SCENARIOS}/slow-link.yaml"),
)
"""Program, options, the counter of its client that shows what the network did, and the network."""
_REFUSED = (
    ("ib_send_bw", "SRD", "-c SRD", "Unable to create QP"),
    ("ib_send_bw", "DC", "-c DC", "Unable to create QP"),
)
"""Program, transport, options, error."""
_TO_SERVER = "-B 02:00:00:00:00:02 -E 02:00:00:00:00:01"
_TO_CLIENT = "-B 02:00:00:00:00:01 -E 02:00:00:00:00:02"
_ADDRESSED = "-J 10.0.0.1 -j 10.0.0.2 -K 7777 -k 7778"
_RAW = (
    ("raw_ethernet_bw", f"{_ADDRESSED} --tcp -n 500", ""),
    ("raw_ethernet_bw", "-s 1500 -n 500", "--sniffer"),
    ("raw_ethernet_lat", f"{_ADDRESSED} -n 500", ""),
)
"""Program, options, further ones of the server. No frame is lost: there are 512 receives."""


def run_raw(program: str, options: str, of_server: str) -> Case:
    """Return a run of two programs that exchange raw packets, and do not connect."""
    return replace(
        run(program, "raw packets", options),
        options=f"{program} {options} {of_server}".rstrip(),
        client=f"{program} --client -d {{client}} {_TO_SERVER} -F {options}",
        server=f"{program} --server -d {{server}} {_TO_CLIENT} -F {options} {of_server}",
        port=0,
    )


def run(program: str, transport: str, options: str) -> Case:
    """Return a run of two programs that connect by TCP."""
    shared = f"-F -p {_PORT} {options}" + ("" if _LENGTH.search(options) else _SHORT)
    return Case(
        PACKAGE,
        f"{program} {options}".rstrip(),
        f"{program} -d {{client}} {shared} 127.0.0.1",
        f"{program} -d {{server}} {shared}",
        transport=transport,
        expect=_FIGURE,
        port=_PORT,
        limit=90,
    )


def run_by_cm(program: str, transport: str, options: str) -> Case:
    """Return a run of two programs that connect by librdmacm."""
    case = run(program, transport, options)
    client = case.client.replace("127.0.0.1", "--source_ip={own_address} {address}")
    return replace(case, client=client, port=0)


def run_with_counter(program: str, options: str, counted: str, network: str) -> Case:
    """Return a run that reports a counter; ``counted`` is its name, ``=``, and its value."""
    counter = f"--report-counters=hw_counters/{counted.partition('=')[0]}"
    case = run(program, "RC", f"{options} {counter}".lstrip())
    return replace(case, expect=rf"hw_counters/{counted}\s", network=network)


def cases() -> Iterator[Case]:
    """Yield all runs."""
    for row in _RUNS:
        yield run(*row)
    for row in _BY_CM:
        yield run_by_cm(*row)
    for raw in _RAW:
        yield run_raw(*raw)
    for program, transport, options, error in _REFUSED:
        refused = run(program, transport, options)
        yield replace(refused, expect="", refused=error, frames=False)
    for program in ("ib_write_bw", "ib_send_bw", "ib_read_bw"):
        yield replace(run(program, "RC", "-n 1000"), network=_LOSSY)
    for program, options, counted, network in COUNTERS:
        yield run_with_counter(program, options, counted, network)
    for program, options in (("ib_write_bw", "-n 500"), ("ib_send_lat", "-n 500")):
        yield replace(run(program, "RC", options), joined=True)
    yield replace(run("ib_send_lat", "UD", "-c UD -n 500"), joined=True)
    yield replace(run("ib_read_bw", "RC", "-n 200"), network="latency=10us,rate=25G")
