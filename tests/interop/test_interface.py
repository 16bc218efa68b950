"""What interfaces of a pcapng are called, here and by tshark."""

import shutil
from pathlib import Path

import pytest

from rdmawire.capture import Interface, create_capture, open_capture
from rdmawire.filter import Filter
from rdmawire.fuzz.tshark_fields import own_values, shared_fields, tshark_values

RPING = Path("captures/linux/rxe61_rping.pcap")
INTERFACES = (
    Interface(name="eth0", description="the left port"),
    Interface(name="größer"),
    Interface(description="the right port"),
    Interface(),
)
FIELDS = [info for info in shared_fields() if info.name.startswith("frame.interface_")]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Frames of all these interfaces in turn."""
    path = tmp_path / "x.pcapng"
    with open_capture(RPING) as reader, create_capture(path, interfaces=INTERFACES) as writer:
        for number, record in enumerate(reader):
            writer.write(record._replace(interface=number % len(INTERFACES)))
    return path


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_interfaces_are_called_what_tshark_calls_them(capture: Path) -> None:
    assert len(FIELDS) == 3
    found = [values for _, values in own_values(capture, FIELDS)]
    assert found == list(tshark_values(capture, FIELDS))
    assert [values["frame.interface_name"] for values in found[:4]] == [
        ["eth0"], ["größer"], ["the right port"], ["unknown"],
    ]  # fmt: skip


def test_a_filter_knows_them_by_name(capture: Path) -> None:
    passes = Filter('frame.interface_name == "eth0"')
    numbers = [frame.number for frame, _ in own_values(capture, FIELDS) if passes(frame)]
    assert numbers == list(range(1, 44, 4))
