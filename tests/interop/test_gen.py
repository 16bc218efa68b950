"""Generated traffic, field by field, against tshark."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rdmawire.capture import LinkType, create_capture
from rdmawire.traffic.generate.generator import generate
from rdmawire.traffic.generate.spec import CapturePoint, TrafficSpec, Verb
from tests.interop.comparison import compared

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")

ORDERS = {
    "mix": TrafficSpec(verb=Verb.MIX, frames=120, qps=3, loss=0.02, psn=0xFFFFF0),
    "ipv6": TrafficSpec(verb=Verb.MIX, frames=60, ipv6=True, vlan=7, dscp=26, gpu=True),
    "ecn": TrafficSpec(verb=Verb.WRITE, frames=80, marks=0.1, tap=CapturePoint.ARRIVED),
    "hosts": TrafficSpec(verb=Verb.MIX, frames=120, clients=4, servers=3, flows=30, loss=0.01),
    "cm": TrafficSpec(verb=Verb.CM, count=4, qps=2),
}


def test_every_field_of_generated_traffic_is_what_tshark_finds(tmp_path: Path) -> None:
    path, names = tmp_path / "generated.pcapng", list[str]()
    with create_capture(path, link_type=LinkType.ETHERNET) as writer:
        for name, order in ORDERS.items():
            names += [name] * generate(order, writer).frames
    _, unexplained = compared(path, names)
    assert len(names) > 300
    assert not unexplained, "\n".join(unexplained[:20])


def test_no_frame_of_many_rounds_is_malformed(tmp_path: Path) -> None:
    order = TrafficSpec(verb=Verb.WRITE, frames=6000, qps=4, psn=0xFFFF00)
    path = tmp_path / "x.pcap"
    with create_capture(path) as writer:
        generate(order, writer)
    good = "infiniband.bth && !_ws.malformed && !_ws.expert.severity"
    command = ["tshark", "-r", str(path), "-Y", good, "-T", "fields", "-e", "frame.number"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert len(done.stdout.splitlines()) == 6000
