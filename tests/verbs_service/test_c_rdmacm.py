"""Programs that use librdmacm: scenarios in C, with sanitizers, on a service."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.ib.cm import CMSettings
from rdmawire.ib.device import GSI_QPN
from rdmawire.verbs_service import network_of
from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.network import DirectNetwork
from rdmawire.wire import mad
from rdmawire.wire.cm import IPCM4, REQ, CMAttribute
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, DETH
from rdmawire.wire.roce import bth_offset
from tests.verbs_service.c_programs import (
    CSRC,
    environment,
    exported,
    library,
    load,
    program,
    run,
)
from tests.verbs_service.running import running
from tests.waiting import HANG, wait_until
from tools.docs import librdmacm

SANITIZERS = ("address", "undefined")
SCENARIOS = (
    "connection local_addresses rejection unseen_request addresses own_queue_pairs datagrams"
    " groups migration synchronous written_events killed_peer others"
)
EPHEMERAL = 0xC000
SHORT = CMSettings(response_timeout=4, max_cm_retries=1, packet_life=4, mra_timeout=4)
"""Times of well under a millisecond, for what is never answered."""


@pytest.mark.parametrize("scenario", SCENARIOS.split())
def test_scenario(tmp_path: Path, scenario: str) -> None:
    with running(tmp_path) as service:
        done = run(program("connections", *SANITIZERS), service.path, scenario)
        assert done.returncode == 0, done.stderr


def test_the_trace_has_the_reason_of_an_address_error(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        done = run(program("connections", *SANITIZERS), service.path, "addresses")
    line = "rdma_resolve_addr: no device has the address 10.9.9.9: No route to host\n"
    assert line in done.stderr


@pytest.mark.parametrize("scenario", ["connection", "other_types"])
def test_scenario_of_xrc(tmp_path: Path, scenario: str) -> None:
    with running(tmp_path) as service:
        done = run(program("xrc_connections", *SANITIZERS), service.path, scenario)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: not service.server.cm.connection_count)


def messages_in(file: Path) -> Iterator[tuple[CMAttribute, list[Header | bytes]]]:
    """The management messages of a capture: their attributes, and what follows the MAD's header."""
    with open_capture(file) as reader:
        frames = [record.data for record in reader]
    for frame in frames:
        at = bth_offset(frame, 0, len(frame))
        if BTH.parse(frame, at).destqp == GSI_QPN:
            start = at + BTH.SIZE + DETH.SIZE
            (_, head), *rest = mad.layout(frame[start : start + mad.SIZE])
            assert isinstance(head, mad.MAD)
            yield CMAttribute(head.attribute_id), [piece for _, piece in rest]


def test_messages_of_the_manager_are_packets_in_the_capture(tmp_path: Path) -> None:
    file = tmp_path / "live.pcap"
    with running(tmp_path, DirectNetwork(Capture(file))) as service:
        done = run(program("connections", *SANITIZERS), service.path, "connection")
        assert done.returncode == 0, done.stderr
    found = list(messages_in(file))
    names = [attribute.name for attribute, _ in found]
    assert names == ["REQ", "REP", "RTU", "DREQ", "DREP"]
    (header,) = (piece for piece in found[0][1] if isinstance(piece, IPCM4))  # IBA A11
    assert header.source_ip == bytes((10, 0, 0, 1))
    assert header.destination_ip == bytes((10, 0, 0, 2))
    assert header.source_port >= EPHEMERAL
    (request,) = (piece for piece in found[0][1] if isinstance(piece, REQ))
    assert (request.service_protocol, request.service_port) == (6, 7471)


def test_a_program_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    with running(tmp_path, cm_settings=SHORT) as service:
        done = run(program("connections", *SANITIZERS), service.path, "slow_program")
        assert done.returncode == 0, done.stderr


def test_requests_that_are_lost_time_out(tmp_path: Path) -> None:
    network, _ = network_of("loss=1", 2)
    with running(tmp_path, network, cm_settings=SHORT) as service:
        done = run(program("connections", *SANITIZERS), service.path, "no_answer")
        assert done.returncode == 0, done.stderr


def test_the_end_of_the_service_wakes_up_threads_that_wait_for_events(tmp_path: Path) -> None:
    path = program("connections", *SANITIZERS)
    with running(tmp_path) as service:
        process = subprocess.Popen(
            [path, "service_ends"],
            env=environment(path.parent, service.path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
    assert process.stdout.readline() == "ended\n"
    with running(tmp_path):
        _, said = process.communicate("\n", timeout=HANG)
    assert process.returncode == 0, said


def test_without_a_service_there_is_no_channel(tmp_path: Path) -> None:
    done = run(program("connections", *SANITIZERS), tmp_path / "none.sock", "connection")
    assert done.returncode == 1
    assert "no verbs service" in done.stderr


def test_everything_that_the_installed_librdmacm_exports_is_there() -> None:
    found = subprocess.run(
        ["cc", "-print-file-name=librdmacm.so.1"], capture_output=True, text=True, check=True
    )
    path = Path(found.stdout.strip())
    assert path.is_absolute(), "librdmacm.so.1 is not found: install librdmacm-dev"
    own = exported(library() / "librdmacm.so.1")
    table = load(CSRC / "rdmacm" / "functions.py")
    assert own == {f"{name}@{version}" for name, version in table.exports()}
    assert exported(path) - own == set()


def test_the_page_lists_each_function_once() -> None:
    text = "\n".join(librdmacm.page())
    names = [name for name, _ in load(CSRC / "rdmacm" / "functions.py").exports()]
    assert [name for name in names if text.count(f"`{name}`") != 1] == []
