"""Capabilities that devices report: their numbers are those of the C headers, and they work."""

import os
import subprocess
from pathlib import Path

from rdmawire.verbs import DeviceCap, EventType, MigrationState
from tests.verbs_service.client import SUCCESS, WRITE, Region
from tests.verbs_service.running import End, Service, connected

HEADERS = {"infiniband/verbs.h": "IBV_DEVICE_", "rdma/ib_user_verbs.h": "IB_UVERBS_DEVICE_"}
SRQ_MAX_WR = 1
NEWEST = {"FLUSH_GLOBAL", "FLUSH_PERSISTENT", "ATOMIC_WRITE"}
"""Capabilities that the headers have since Linux 6.3."""
LINK_LOCAL = 1
ALT_PATH_MASK, PATH_MIG_MASK = 1 << 14, 1 << 18


def test_capabilities_have_the_numbers_of_the_headers(tmp_path: Path) -> None:
    found: dict[str, int] = {}
    for header, prefix in HEADERS.items():
        command = [os.environ.get("CC", "cc"), "-E", "-dD", "-xc", "-"]
        text = f"#include <{header}>\n"
        shown = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        names = [one for one in DeviceCap.__members__ if f"{prefix}{one} " in shown.stdout]
        found |= _values(tmp_path / "values", text, prefix, names)
    assert found == {name: DeviceCap[name].value for name in found}
    assert set(DeviceCap.__members__) - set(found) <= NEWEST


def _values(program: Path, include: str, prefix: str, names: list[str]) -> dict[str, int]:
    """The values of the constants ``prefix`` and a name, as a C program prints them."""
    lines = "".join(f'printf("%llu\\n", (unsigned long long){prefix}{name});' for name in names)
    source = f"#include <stdio.h>\n{include}int main(void) {{ {lines} return 0; }}"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-xc", "-", "-o", program], input=source, text=True, check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return dict(zip(names, map(int, printed.split()), strict=True))


def test_shared_receive_queue_is_resized(service: Service) -> None:
    client = service.connect()
    assert client.attr["device_cap_flags"] & DeviceCap.SRQ_RESIZE
    (srq, *_) = client.call("create_srq", client.pd, 0, 2, 1, 0, 0, 0)
    client.call("modify_srq", srq, SRQ_MAX_WR, 4, 0)
    assert client.call("query_srq", srq) == [4, 1, 0]
    cq, region = client.create_cq(), client.buffer(4096)
    qp = client.create_qp(cq, srq=srq)
    client.bring_up(qp, qp, client.gid())
    for number in range(4):
        client.receive_shared(srq, region.sge(number * 8, 8), wr_id=number)
    for number in range(4):
        client.send_inline(qp, bytes((number,)) * 8, wr_id=100)
    received = [one for one in cq.wait(8) if one.wr_id < 100]
    assert [(one.wr_id, one.status) for one in received] == [(at, SUCCESS) for at in range(4)]


def test_connection_moves_to_its_alternate_path(service: Service) -> None:
    one, other = connected(service)
    assert one.client.attr["device_cap_flags"] & DeviceCap.AUTO_PATH_MIG
    regions = {end: end.client.buffer(4096) for end in (one, other)}
    for end, peer in ((one, other), (other, one)):
        first, second = peer.client.gid(LINK_LOCAL)
        alternate = {"alt_dgid0": first, "alt_dgid1": second, "alt_sgid_index": LINK_LOCAL}
        mask = ALT_PATH_MASK | PATH_MIG_MASK
        wanted = {"path_mig_state": MigrationState.REARM, "alt_port_num": 1, "alt_hop_limit": 64}
        end.client.modify(end.qp, mask, **wanted, **alternate, alt_is_global=1)
    for end, peer in ((one, other), (other, one)):
        _write(end, regions[peer])  # tells the peer that this side is ready to migrate
    one.client.modify(one.qp, PATH_MIG_MASK, path_mig_state=MigrationState.MIGRATED)
    _write(one, regions[other])
    assert other.client.query(other.qp)["path_mig_state"] == MigrationState.MIGRATED
    assert other.client.events(1) == [(EventType.PATH_MIG, other.qp.number)]


def _write(end: End, region: Region) -> None:
    place = {"remote_address": region.memory.address, "rkey": region.rkey}
    end.client.send_inline(end.qp, b"data", opcode=WRITE, **place)
    assert [one.status for one in end.cq.wait()] == [SUCCESS]
