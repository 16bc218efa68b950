"""Packets of transfers over InfiniBand, field by field, against tshark."""

import shutil
from pathlib import Path

import pytest

from rdmawire.gpudirect.transfer import LinkLayer, Transfer, TransferPath, TransferSpec
from rdmawire.traffic.scenario.topology_file import open_host
from tests.interop.comparison import compared

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")


def test_every_field_of_a_native_packet_is_what_tshark_finds(tmp_path: Path) -> None:
    machine = open_host("dgx-h200").machine
    layer = LinkLayer.INFINIBAND
    path = tmp_path / "native.pcapng"
    one = Transfer(TransferSpec(machine, "GPU0", "GPU1", TransferPath.HOST, 9001, layer=layer))
    with one.network.captured(path):
        assert one.run().frames == 4
    _, unexplained = compared(path)
    assert not unexplained, "\n".join(unexplained[:20])
