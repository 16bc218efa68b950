"""Which frame of the capture a failure names: the one that shows it, or none."""

from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.pfc import quanta_of
from rdmawire.traffic.scenario.document import Failure
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner import observer
from rdmawire.traffic.scenario.runner.observer import FrameIndex, FrameRef, Occurrences
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.types import Content, Fill
from tests.traffic.scenario.scene import (
    CLIENT,
    SERVER,
    SINK,
    SOURCE,
    between,
    connection,
    counts,
    event,
    exactly,
    expecting,
    failures,
    fault,
    holds,
    link,
    scene,
    state,
    step,
    write,
)

FAULTS = {
    "lost": (101, "drop: {}"),
    "reordered": (103, "reorder: {behind: 3, most: 20 us}"),
    "corrupted": (105, "corrupt: {}"),
    "duplicated": (107, "duplicate: {times: 2, wait: 100 ns}"),
    "delayed": (109, "delay: {by: 1 us, most: 5 us}"),
    "truncated": (111, "truncate: {by: 10}"),
    "marked": (112, "mark: {}"),
    "rewritten": (113, "set: {field: ip.ttl, value: 3}"),
}
"""What befalls which PSN of the first host, by what it counts as."""

OF_SWITCH = ("s:c.drops", "s:c.drops_3", "s:c.marks", "s:a.stops")
COUNTED = (*(f"a-s.{name}" for name in FAULTS), "a-s.frames", *OF_SWITCH)
NO_FRAME = ("s.peak", "a.paused_ns", "a.host_bytes", "c.host_transactions")

TEXT = """\
name: Two senders, a port that is too slow, and every fault
hosts:
  a: {{memory: {{src: {{size: 64 KiB, fill: random}}}}}}
  b: {{memory: {{src: {{size: 64 KiB, fill: random}}}}}}
  c: {{memory: {{one: 64 KiB, two: 64 KiB}}}}
switches:
  s:
    buffer: 100 KiB
    queue: 20 KiB
    queues:
      3: {{dscp: 26, kmin: 2 KiB, kmax: 10 KiB, xoff: 12 KiB, xon: 6 KiB, headroom: 2 KiB}}
links:
  a-s: {{latency: 100 ns, rate: 100 Gbit/s, faults: [{faults}]}}
  b-s: {{latency: 100 ns, rate: 100 Gbit/s}}
  s-c: {{latency: 100 ns, rate: 20 Gbit/s}}
connections:
  x: {{between: "a, c", psn: 100, dscp: 26, ecn: true, attributes: {{timeout: 4}}}}
  y: {{between: "b, c", psn: 100, dscp: 26, ecn: true, attributes: {{timeout: 4}}}}
work:
  - write: {{on: a/x, from: a.src, to: c.one}}
  - write: {{on: b/y, from: b.src, to: c.two}}
expect:
  counters: {{{counters}}}
"""


def busy(*counters: str) -> Scenario:
    """A network in which all of it happens, and nothing of it should."""
    faults = ", ".join(
        text.replace("{", f"{{where: {{bth.psn: {psn}}}, nth: 1, ").replace(", }", "}")
        for psn, text in FAULTS.values()
    )
    return read_scenario_text(
        TEXT.format(faults=faults, counters=", ".join(f"{name}: 0" for name in counters)), "it.yaml"
    )


def shown(scenario: Scenario, path: Path, *points: str) -> tuple[dict[str, Failure], list[bytes]]:
    """Failures by their counters, and the frames of the capture."""
    outcome = play(scenario, capture=path, points=points)
    with open_capture(path) as reader:
        frames = [record.data for record in reader]
    return {failure.what.removeprefix("counter "): failure for failure in outcome.failures}, frames


def sent(frame: bytes) -> tuple[bytes, int]:
    """The sender of a frame, and its PSN, also where its end is missing."""
    return frame[6:12], int.from_bytes(frame[51:54], "big")


def test_counters_of_links_name_the_frame_that_was_sent_first(tmp_path: Path) -> None:
    """Where there are switches, too: the capture has the frame, and its number there is said."""
    scenario = busy(*COUNTED)
    failed, frames = shown(scenario, tmp_path / "x.pcap")
    first = frames[0][6:12]
    for name, (psn, _) in FAULTS.items():
        failure = failed[f"a-s.{name}"]
        assert failure.point == ""
        assert failure.frame is not None
        assert sent(frames[failure.frame - 1]) == (first, psn)
    assert failed["a-s.frames"].frame == 1


def test_counters_of_ports_name_the_frame_that_was_sent(tmp_path: Path) -> None:
    failed, frames = shown(busy(*OF_SWITCH), tmp_path / "x.pcap")
    there, arrived = shown(busy(*OF_SWITCH), tmp_path / "y.pcap", "s:c")
    assert there["s:c.marks"].point == there["s:c.drops"].point == ""
    assert arrived[(there["s:c.marks"].frame or 0) - 1][15] & 3 == 3
    assert there["s:c.drops"].frame is None  # it never went out there
    came = [sent(frame) for frame in arrived]
    dropped = sent(frames[(failed["s:c.drops"].frame or 0) - 1])
    assert came.count(dropped) < [sent(frame) for frame in frames].count(dropped)
    assert failed["s:c.drops_3"].frame == failed["s:c.drops"].frame
    marked = sent(frames[(failed["s:c.marks"].frame or 0) - 1])
    assert marked == sent(arrived[(there["s:c.marks"].frame or 0) - 1])
    assert failed["s:a.stops"].frame is not None


def test_a_pause_is_named_where_the_capture_has_it(tmp_path: Path) -> None:
    failed, frames = shown(busy("a.pauses"), tmp_path / "x.pcap", "a-s")
    assert quanta_of(frames[(failed["a.pauses"].frame or 0) - 1]) is not None
    failed, _ = shown(busy("a.pauses"), tmp_path / "y.pcap")
    assert failed["a.pauses"].point == "a --arrived"


def test_what_no_frame_shows_names_none(tmp_path: Path) -> None:
    failed, _ = shown(busy(*NO_FRAME), tmp_path / "x.pcap")
    assert {name: failure.frame for name, failure in failed.items()} == dict.fromkeys(NO_FRAME)


def test_frames_that_a_host_dropped_are_named() -> None:
    spoilt = fault("corrupt", sent_by=CLIENT, packet=(3, 5), nth=(1,))
    found = failures(
        scene(write(), links=(link(spoilt),)),
        counts("server.dropped", exactly(0)),
        counts("server.dropped_icrc", exactly(1)),
        counts("server.dropped_icrc", exactly(9)),
        counts("client.frames", between(0, 10)),
        counts("client.messages", exactly(2)),
        counts("client.bytes", exactly(2)),
    )
    assert [text.partition("found ")[2] for text in found] == [
        *("2 (frame 3)", "2 (frame 5)", "2 (frame 5)"),
        *("14 (frame 12)", "1 (frame 8)", "8192 (frame 1)"),
    ]


def test_memory_names_the_frame_that_wrote_it_however_often() -> None:
    spoilt = fault(
        "corrupt", sent_by=CLIENT, packet=range(1, 9), options={"byte": -1, "seal": True}
    )
    pieces = [
        holds(SINK._replace(offset=at, length=1024), SOURCE._replace(offset=at, length=1024))
        for at in range(0, 8192, 1024)
    ]
    scenario = expecting(scene(write(), links=(link(spoilt),)), *pieces)
    for arrived in (False, True):
        points = ["server"] if arrived else []
        outcome = play(scenario, points=points, arrived=arrived)
        assert [failure.frame for failure in outcome.failures] == list(range(1, 9))


def test_bytes_that_an_application_wrote_later_are_no_frames() -> None:
    values = {"what": SINK, "content": Content(fill=Fill.ZEROS)}
    later = write(name="w"), step("fill", end=None, after=("w",), values=values)
    (found,) = failures(scene(*later), holds(SINK, SOURCE))
    assert found.endswith("at byte 1")


def test_a_state_that_no_frame_led_to_names_none() -> None:
    """A timer, or whoever owns the queue pair, did it, though there was a NAK before."""
    lost = fault("drop", sent_by=CLIENT, packet=(8,))
    early = fault("drop", sent_by=CLIENT, packet=(1,), nth=(1,))
    impatient = connection(attributes={"timeout": 1, "retry_cnt": 2})
    scenario = scene(
        write(status="RETRY_EXC_ERR"), links=(link(early, lost),), connections=(impatient,)
    )
    found = failures(
        scenario,
        state(CLIENT, "RTS"),
        state(SERVER, "SQD"),
        counts("server.naks", exactly(0)),
        event("QPFatal", exactly(1), of="client"),
    )
    assert found[:2] == [
        "state of client/a: expected RTS, found ERR",
        "state of server/a: expected SQD, found RTS",
    ]
    assert "(frame" in found[2]
    assert found[3] == "events client.QPFatal: expected 1, found 0"


@pytest.mark.parametrize(("most", "number"), [(0, 1), (3, 2), (5, 3), (6, 3), (None, 3)])
def test_the_first_that_is_too_much_is_shown_or_else_the_last(
    most: int | None, number: int
) -> None:
    sightings = Occurrences[FrameRef](most)
    for frame in (1, 2, 3):
        sightings.record(FrameRef(frame), 2)
    assert sightings.shown == FrameRef(number)


def test_frames_are_known_by_their_ids_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "MAX_FRAMES", 2)
    known = FrameIndex()
    one, same, other, last = (
        Envelope(data, id_) for id_, data in enumerate((b"four", b"four", b"other", b"1234567"), 11)
    )
    known.add(one, 1)
    assert [known.of(frame.id) for frame in (one, same, other, last)] == [1, None, None, None]
    assert known.of(one.altered(other.data).id) == 1
    known.add(other, 2)
    known.add(last, 3)
    assert [known.of(frame.id) for frame in (one, same, other, last)] == [None, None, 2, 3]


def test_a_frame_that_has_a_new_number_is_known_as_long_as_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observer, "MAX_FRAMES", 2)
    known, again, other, last = FrameIndex(), *(Envelope(b"", id_) for id_ in (11, 12, 13))
    for number, frame in enumerate((again, other, again, last), 1):
        known.add(frame, number)
    assert [known.of(frame.id) for frame in (again, other, last)] == [3, None, 4]
    known.add(other, 5)
    assert [known.of(frame.id) for frame in (again, other, last)] == [None, 5, 4]
