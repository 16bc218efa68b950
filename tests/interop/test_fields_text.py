"""`rdmawire dissect -T fields` prints what `tshark -T fields` prints, byte for byte."""

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from rdmawire.cli.dissect import command

LINUX = Path(__file__).parents[2] / "captures" / "linux"

ROCE = (
    *("frame.number", "frame.time_epoch", "frame.len", "eth.src", "eth.type", "ip.src", "ip.addr"),
    *("ip.dsfield.ecn", "ip.flags", "ipv6.dst", "udp.srcport", "udp.checksum"),
    *("infiniband.bth", "infiniband.bth.opcode", "infiniband.bth.se", "infiniband.bth.p_key"),
    *("infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.bth.a", "infiniband.deth.q_key"),
    *("infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen"),
    *("infiniband.aeth.syndrome", "infiniband.aeth.msn", "infiniband.immdt"),
    *("infiniband.atomiceth.swapdt", "infiniband.mad.attributeid", "infiniband.cm.req.localqpn"),
)
IWARP = (
    *("frame.number", "ip.src", "tcp.srcport", "tcp.stream", "tcp.seq", "tcp.ack", "tcp.len"),
    *("tcp.flags", "iwarp_mpa.ulpdulength", "iwarp_mpa.crc_check", "iwarp_mpa.privatedata"),
    *("iwarp_ddp.last_flag", "iwarp_ddp.stag", "iwarp_ddp.tagged_offset", "iwarp_ddp.msn"),
    *("iwarp_rdma.opcode", "iwarp_rdma.rr", "iwarp_rdma.sinkstag", "iwarp_rdma.term_layer"),
)
pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")


SEPARATED = ("header=y", "separator=,", "quote=d", "occurrence=f")

CASES = [
    ("rxe61_rping", ROCE, ()),
    ("rxe61_vt_rc_v6", ROCE, SEPARATED),
    ("siw61_rping", IWARP, SEPARATED),
    ("siw61_err_badstag_write", IWARP, ()),
]
SLOW_CASES = [
    ("rxe61_vt_rc_all_1024", ROCE, ()),
    ("rxe61_vt_rc_all_1024", ROCE, SEPARATED),
    ("rxe61_rping", ROCE, SEPARATED),
    ("rxe61_vt_rc_v6", ROCE, ()),
    ("rxe61_rnr", ROCE, ()),
    ("rxe61_rnr", ROCE, SEPARATED),
    ("siw61_rping", IWARP, ()),
    ("siw612crc_vt_all", IWARP, ()),
    ("siw612crc_vt_all", IWARP, SEPARATED),
    ("siw61_err_badstag_write", IWARP, SEPARATED),
]


@pytest.mark.parametrize(
    ("name", "fields", "settings"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_CASES)],
)
def test_the_text_is_the_same(
    name: str, fields: tuple[str, ...], settings: tuple[str, ...]
) -> None:
    path = str(LINUX / f"{name}.pcap")
    words = ["-T", "fields"]
    words += [word for field in fields for word in ("-e", field)]
    words += [word for setting in settings for word in ("-E", setting)]
    theirs = subprocess.run(["tshark", "-r", path, *words], capture_output=True, check=True)
    ours = CliRunner().invoke(command, [*words, path])
    assert (ours.exit_code, ours.stdout_bytes) == (0, theirs.stdout)
