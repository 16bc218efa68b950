"""Commands in captures: those without a response, and frames that are damaged."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import Record, open_capture
from rdmawire.gpudirect.storage import CapsuleReader, CapturedCommand, StorageRun, StorageSpec
from rdmawire.traffic.scenario.topology_file import open_host


@cache
def records() -> list[Record]:
    """The frames of two READs and two WRITEs."""
    run = StorageRun(StorageSpec(open_host("dgx-h200").machine, "GPU0", reads=2, writes=2))
    with TemporaryDirectory() as folder:
        path = Path(folder, "nvme.pcap")
        with run.network.captured(path):
            run.run()
        with open_capture(path) as reader:
            return list(reader)


def read(frames: list[Record], ports: tuple[int, ...] = (4420,)) -> list[CapturedCommand]:
    capsules = CapsuleReader(ports)
    found = [command for frame in frames if (command := capsules.read(frame))]
    return found + list(capsules.rest())


@given(st.integers(0, 200))
def test_commands_whose_response_is_cut_off_have_none(count: int) -> None:
    frames = records()[:count]
    for command in read(frames):
        assert command.frame <= count
        assert command.completion is None or command.end_ns <= frames[-1].time_ns
    everything = read(records())
    assert all(one.completion is not None for one in everything)
    assert len(read(frames)) <= len(everything)


def test_other_ports_are_left_out() -> None:
    assert len(read(records())) == 13
    assert read(records(), ports=(4421,)) == []


def test_without_the_connections_nothing_is_read() -> None:
    assert read(records()[3:38]) == []


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=40), st.data())
def test_damaged_frames_are_read_without_errors(
    changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    frames = [bytearray(record.data) for record in records()[:60]]
    for place, value in changes:
        frame = frames[place % len(frames)]
        frame[data.draw(st.integers(0, len(frame) - 1))] = value
    cut = data.draw(st.integers(0, 59))
    frames[cut] = frames[cut][: data.draw(st.integers(0, len(frames[cut])))]
    damaged = [
        record._replace(data=bytes(frame)) for record, frame in zip(records(), frames, strict=False)
    ]
    assert len(read(damaged)) <= 60
