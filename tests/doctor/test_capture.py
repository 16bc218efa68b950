"""The doctor on captures: what each of real traffic shows, and nothing about good ones."""

from pathlib import Path

import pytest

from rdmawire.capture import create_capture, open_capture
from rdmawire.doctor import examine_capture
from rdmawire.fabric import (
    Cable,
    CaptureTap,
    Host,
    Network,
    NotifyingPort,
    connect,
    pfc_frame,
    star,
)
from rdmawire.fabric.pair import CAP
from rdmawire.ib import QPInit
from rdmawire.units import gbps, us
from rdmawire.verbs import QPType, SendFlags, SendOpcode, SendWR

LINUX = Path(__file__).parents[2] / "captures" / "linux"


def causes(path: Path) -> list[str]:
    return [finding.check.name for finding in examine_capture(path)]


GOOD = (
    "rxe61_read_bw", "rxe61_write_bw", "rxe61_send_bw_rc", "rxe61_ud_pingpong", "rxe61_rping",
    "rxe61_write_bw_uc", "rxe61_vt_rc_all_1024", "rxe61_vt_rc_v6", "rxe61_ucmatose", "siw61_rping",
    "siw61_vt_all", "siw612crc_vt_all", "rxe61_atomic_bw_faa", "rxe61_write_lat",
)  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_traffic_has_no_findings(name: str) -> None:
    assert causes(LINUX / f"{name}.pcap") == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rxe61_err_badrkey_write", ["remote-access"]),
        ("rxe61_err_oob_write", ["remote-access"]),
        ("rxe61_err_send_too_long", ["remote-operation"]),
        ("rxe61_loss_ack", ["tail-loss"]),
        ("rxe61_loss_req_last", ["tail-loss"]),
        ("rxe61_loss_req_middle", ["loss", "dscp-not-set"]),
        ("rxe61_retry_exceeded", ["no-answer"]),
        ("rxe61_rnr", ["receiver-not-ready"]),
        ("rxe61_rnr_exceeded", ["receiver-not-ready"]),
        ("siw61_err_no_recv", ["terminated"]),
        ("siw612crc_err_badstag_write", ["terminated"]),
    ],
)
def test_faults_are_named(name: str, expected: list[str]) -> None:
    assert causes(LINUX / f"{name}.pcap") == expected


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("bad_icrc", "bad-icrc"),
        ("bad_vcrc", "bad-vcrc"),
        ("malformed", "malformed"),
        ("two_reasons", "malformed"),
        ("iwarp_bad_crc", "bad-crc"),
    ],
)
def test_damaged_frames_are_named(file: str, name: str) -> None:
    found = examine_capture(LINUX.parent / "faulty" / f"{file}.pcap")
    (one,) = [finding for finding in found if finding.check.name == name]
    assert one.evidence[0]


def traffic(path: Path, *, dscp: int, pairs: int = 1, source_port: int | None = None) -> None:
    """Write a capture of WRITEs of some queue pairs."""
    ends = [Host(number, source_port=source_port) for number in (1, 2)]
    network = Network()
    hosts = {name: _Attached(end) for name, end in zip("ab", ends, strict=True)}
    star(network, hosts, Cable(us(1), gbps(100)))
    buffers = [end.buffer(4096) for end in ends]
    with CaptureTap(path) as tap:
        for name in "ab":
            network.tap(name, tap.point(name))
        for _ in range(pairs):
            queues = []
            for end in ends:
                cq = end.nic.create_cq(16)
                queues.append(end.nic.create_qp(QPType.RC, QPInit(end.pd, cq, cq, CAP)))
            connect(ends[0], queues[0], ends[1], queues[1], traffic_class=dscp << 2)
            work = SendWR(
                SendOpcode.RDMA_WRITE,
                (buffers[0].sge(100),),
                remote_address=buffers[1].address,
                rkey=buffers[1].rkey,
                flags=SendFlags.SIGNALED,
            )
            queues[0].post_send((work,))
        network.simulator.run()


class _Attached:
    def __init__(self, host: Host) -> None:
        self.mac = host.mac
        self.nic = NotifyingPort(host.nic)


@pytest.mark.parametrize(("dscp", "expected"), [(26, []), (0, ["pfc-on-wrong-priority"])])
def test_pfc_on_the_wrong_priority(tmp_path: Path, dscp: int, expected: list[str]) -> None:
    path, paused = tmp_path / "data.pcapng", tmp_path / "paused.pcap"
    traffic(path, dscp=dscp)
    with open_capture(path) as capture, create_capture(paused) as writer:
        for record in capture:
            writer.write(record)
        writer.write(record._replace(data=pfc_frame(bytes(6), 3, 0xFFFF)))
    assert causes(paused) == expected


@pytest.mark.parametrize(("port", "expected"), [(None, []), (50_000, ["one-source-port"])])
def test_one_source_port(tmp_path: Path, port: int | None, expected: list[str]) -> None:
    path = tmp_path / "ports.pcapng"
    traffic(path, dscp=26, pairs=10, source_port=port)
    assert causes(path) == expected
