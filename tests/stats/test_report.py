"""What is known to have gone wrong in real captures is what the report says.

``captures/linux/manifest.toml`` lists what each has and which fault it shows.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from rdmawire.stats import Statistics
from rdmawire.stats.collector import report_of
from rdmawire.stats.report import Report

LINUX = Path(__file__).parents[2] / "captures" / "linux"


def report(name: str) -> Report:
    statistics = Statistics()
    statistics.read(LINUX / name)
    return report_of(statistics, [name])


class Fault(NamedTuple):
    """What the requests of the client and the responses of the server come to."""

    capture: str
    duplicates: int = 0
    gaps: int = 0
    missing: int = 0
    naks: tuple[tuple[str, int], ...] = ()
    rnr: tuple[tuple[int, int], ...] = ()


FAULTS = (
    Fault("rxe61_loss_ack.pcap", duplicates=1),
    Fault("rxe61_loss_atomic_resp.pcap", duplicates=1),
    Fault("rxe61_loss_read_req.pcap", duplicates=1),
    # Go back to the third packet of the response: inside what the READ took.
    Fault("rxe61_loss_read_resp.pcap", duplicates=1),
    Fault("rxe61_loss_req_last.pcap", duplicates=3),
    # The relay wrote the packet that it then dropped, and the NAK; two were sent again.
    Fault("rxe61_loss_req_middle.pcap", duplicates=2, naks=(("PSN_SEQUENCE_ERROR", 1),)),
    Fault("rxe61_retry_exceeded.pcap", duplicates=2),
    Fault("rxe61_rnr.pcap", duplicates=65, rnr=((14, 65),)),
    Fault("rxe61_rnr_exceeded.pcap", duplicates=2, rnr=((12, 3),)),
    # The relay wrote what it duplicated once.
    Fault("rxe61_dup_req.pcap"),
    Fault("rxe61_err_badrkey_read.pcap", naks=(("REMOTE_ACCESS_ERROR", 1),)),
    Fault("rxe61_err_badrkey_write.pcap", naks=(("REMOTE_ACCESS_ERROR", 1),)),
    Fault("rxe61_err_oob_write.pcap", naks=(("REMOTE_ACCESS_ERROR", 1),)),
    Fault("rxe61_err_send_too_long.pcap", naks=(("REMOTE_OPERATIONAL_ERROR", 1),)),
    Fault("rxe61_vt_rc_all_1024.pcap"),
    Fault("rxe61_vt_rc_all_256.pcap"),
    Fault("rxe61_read_bw.pcap"),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.capture)
def test_a_known_fault_is_counted(fault: Fault) -> None:
    found = report(fault.capture)
    asking = next(flow for flow in found.flows if flow.requests.frames)
    requests = asking.requests
    counts = requests.duplicates, requests.gaps, requests.missing
    assert counts == (fault.duplicates, fault.gaps, fault.missing)
    answering = [flow.responses for flow in found.flows if flow.source == asking.destination]
    assert tuple(nak for own in answering for nak in own.naks.items()) == fault.naks
    rnr = tuple((each.timer, each.count) for own in answering for each in own.rnr_naks)
    assert rnr == fault.rnr


@pytest.mark.parametrize(
    ("capture", "mtu"),
    [
        ("rxe61_vt_rc_all_256.pcap", 256),
        ("rxe61_read_bw.pcap", 1024),
        ("rxe61jumbo_vt_rc_2048.pcap", 2048),
        ("rxe61jumbo_rc_pingpong_4096.pcap", 4096),
    ],
)
def test_the_path_mtu_is_that_of_full_packets(capture: str, mtu: int) -> None:
    """Also where only the responses have any: READs alone, of a client."""
    assert {flow.path_mtu for flow in report(capture).flows} == {mtu}


def test_congestion_is_counted() -> None:
    statistics = Statistics()
    statistics.read(LINUX.parent / "generated" / "congestion.pcap")
    found = report_of(statistics, [])
    assert sum(flow.cnps for flow in found.flows) == 1
    assert sum(flow.ecn_ce for flow in found.flows) == 1


def test_streams_of_iwarp() -> None:
    found = report("siw61_err_badstag_write.pcap")
    client, server = found.streams
    assert client.opcodes == {"RDMA_WRITE": 2}
    assert (client.fpdus, client.payload, client.crc) == (2, 200, {"absent": 2})
    assert server.terminates == {"DDP TAGGED_BUFFER_ERROR INVALID_STAG": 1}
    assert (found.iwarp.frames, found.other.frames) == (5, 11)


def test_bad_crcs_of_iwarp_are_counted() -> None:
    statistics = Statistics()
    statistics.read(LINUX.parent / "faulty" / "iwarp_bad_crc.pcap")
    found = report_of(statistics, [])
    assert sum(stream.crc.get("bad", 0) for stream in found.streams) == 1


def test_fpdus_are_those_of_the_manifest() -> None:
    """IW_READ_REQ 3, IW_READ_RESP 3, IW_SEND 12, IW_WRITE 3."""
    counts = {each.name: each.fpdus for each in report("siw612crc_rping.pcap").rdmap_opcodes}
    assert counts == {
        "SEND": 12, "RDMA_WRITE": 3, "RDMA_READ_REQUEST": 3, "RDMA_READ_RESPONSE": 3,
    }  # fmt: skip


def test_endpoints_send_and_receive() -> None:
    one, other = report("rxe61_rnr.pcap").endpoints
    assert (one.sent, one.received) == (other.received, other.sent)
    assert {one.sent.frames, one.received.frames} == {68, 69}
