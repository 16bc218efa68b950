"""The same seed gives the same bytes at the same times, whatever the machine is set to."""

import hashlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.fault import Rule
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.network import Cable, Network, leaf_spine
from rdmawire.fabric.switch_config import KIB, Marking, Pausing, SwitchSettings
from rdmawire.units import gbps, us
from rdmawire.wire.inet import ECN
from tests.fabric.talker import Talker, frame_of
from tests.fabric.test_network import busy

ROOT = Path(__file__).parents[2]
CABLE = Cable(us(1), gbps(25))
SETTINGS = SwitchSettings(
    marking={
        0: Marking(4 * KIB, 64 * KIB, 0.5),
        1: Marking(2 * KIB, 32 * KIB, 0.3, departing=True),
    },
    pausing={0: Pausing(32 * KIB, 16 * KIB, 64 * KIB)},
)
FAULTS = (
    Rule("drop", chance=0.03),
    Rule("delay", chance=0.05, by=us(3)),
    Rule("duplicate", {"bth.psn": range(0, 100, 7)}),
    Rule("corrupt", chance=0.02),
    Rule("reorder", {"ip.ecn": ECN.CE}, chance=0.2, behind=2),
)
GOLDEN = "0e543ad92e4780ae2b4372cdbc6b9115aff8b75a454733186bfe4f5a3a94efc8"
"""Of what the talkers' links carried, where this was written. It changes if the fabric does."""

WAYS = (
    {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "4711", "TZ": "Asia/Kolkata", "LC_ALL": "tr_TR.UTF-8"},
    {"PYTHONHASHSEED": "99", "TZ": "America/St_Johns", "LC_ALL": "C.UTF-8", "PYTHONOPTIMIZE": "1"},
)


def talkers(seed: int) -> str:
    """Six hosts on two leaves and three spines all talk to all, by two priorities, with faults."""
    network = Network(seed=seed, settings=SETTINGS)
    hosts = {f"h{number}": Talker(number) for number in range(1, 7)}
    leaf_spine(network, hosts, leaves=2, spines=3, edge=CABLE, trunk=CABLE)
    network.set_faults("h2-leaf2", *FAULTS)
    network.set_faults("leaf1-spine2", Rule("drop", chance=0.01))
    for source, talker in enumerate(hosts.values(), 1):
        for psn in range(120):
            sink = (source + psn % 5) % 6 + 1
            dscp = (psn & 1) << 3
            talker.frames.append(frame_of(source, sink, psn, dscp=dscp, port=0xC000 + psn % 11))
    seen = hashlib.sha256()

    def note(name: str, frame: Envelope, now: int) -> None:
        seen.update(f"{now} {name} ".encode() + frame.data)

    for name in network.links:
        network.tap(name, partial(note, name))
    network.simulator.run()
    return seen.hexdigest()


def adapters(seed: int, path: Path) -> str:
    """Six adapters that write to each other, across switches that mark, pause and lose."""
    network, _ = busy(seed)
    with CaptureTap(path) as tap:
        for name in ("h1", "h2-leaf2", "leaf1:spine1", "leaf2:h2"):
            network.tap(name, tap.point(name))
        network.simulator.run()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def both(seed: int, path: Path) -> list[str]:
    return [talkers(seed), adapters(seed, path)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What this process finds."""
    return both(1, tmp_path_factory.mktemp("here") / "here.pcapng")


def test_the_seed_decides(here: list[str], tmp_path: Path) -> None:
    assert both(1, tmp_path / "again.pcapng") == here
    assert not set(both(2, tmp_path / "2.pcapng")) & set(here)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["LC_ALL"])
def test_nothing_else_does(way: dict[str, str], here: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from tests.fabric.test_network_same_bytes import both;"
        "print(*both(1, Path(sys.argv[1])))"
    )
    found = subprocess.run(
        (sys.executable, "-c", code, str(tmp_path / "child.pcapng")),
        env={**os.environ, **way},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == here


def test_another_machine_found_the_same() -> None:
    assert talkers(1) == GOLDEN
