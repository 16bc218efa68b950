"""Edited captures as tshark reads them: the fields are the new ones, and its checksums are good."""

import shutil
from pathlib import Path

import pytest

from rdmawire.dissect.fields import FieldInfo
from rdmawire.fuzz.tshark_fields import Values, shared_fields, tshark_values
from rdmawire.traffic.edit import Editor, edit_capture, text

LINUX = Path(__file__).parents[2] / "captures" / "linux"

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")

ASKED = (
    *("eth.src", "eth.dst", "ip.src", "ip.dst", "ip.ttl", "ip.dsfield.ecn", "ip.checksum.status"),
    *("ipv6.src", "ipv6.dst", "tcp.checksum.status", "udp.srcport", "infiniband.bth.psn"),
    *("infiniband.bth.destqp", "infiniband.bth.p_key", "infiniband.reth.va"),
    *("infiniband.reth.r_key", "infiniband.cm.req.localqpn", "infiniband.cm.req.startpsn"),
    *("infiniband.cm.req.ip_cm.sip4", "infiniband.cm.req.prim_localgid_ipv4", "frame.number"),
)


def fields() -> list[FieldInfo]:
    return [info for info in shared_fields() if info.name in ASKED]


def values(path: Path) -> list[Values]:
    return list(tshark_values(path, fields()))


def mapped(shown: str, name: str) -> str:
    """Return the expected value of a field after the edit, as tshark writes it."""
    if name in ("infiniband.bth.psn", "infiniband.cm.req.startpsn"):
        moved = (int(shown, 0) + 100) % (1 << 24)
        return f"0x{moved:06x}" if shown.startswith("0x") else str(moved)
    if name == "infiniband.reth.va":
        return f"0x{int(shown, 0) + 0x1000:016x}"
    return WORDS.get(shown, shown)


WORDS = {
    "52:54:00:00:00:01": "02:00:00:00:00:0a",
    "10.77.0.1": "192.168.7.1",
    "10.77.0.2": "192.168.7.2",
    "fd77::1": "fd99::1",
    "0x000011": "0x001234",
    "0x00000011": "0x00001234",
}


@pytest.mark.parametrize(
    "name",
    ["rxe61_rping", "rxe61_vt_rc_v6", pytest.param("rxe61_write_bw", marks=pytest.mark.slow)],
)
def test_tshark_reads_the_new_values_and_finds_its_checksums_good(
    name: str, tmp_path: Path
) -> None:
    source, out = LINUX / f"{name}.pcap", tmp_path / "out.pcap"
    rules = [
        text.macs(["52:54:00:00:00:01=02:00:00:00:00:0a"]),
        text.ips(["10.77.0.0/24=192.168.7.0/24", "fd77::1=fd99::1"]),
        text.qpns(["0x11=0x1234"]),
        text.psn_offsets(["100"]),
        text.va_offsets(["0x1000"]),
    ]
    edit_capture(source, out, Editor(rules))
    before, after = values(source), values(out)
    assert len(before) == len(after) > 30
    for old, new in zip(before, after, strict=True):
        wanted = {key: [mapped(shown, key) for shown in old[key]] for key in old}
        assert new == wanted
    assert sum("infiniband.bth.psn" in one for one in after) > 10
