"""Where frames are counted: sent by hosts, put on a link, or arriving."""

from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.fabric.field import Fields
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.wire.inet import ECN, MACControl
from tests.traffic.scenario.scene import failures_of

INCAST = """\
name: Two write to a third
hosts:
  one: {memory: {source: {size: 128 KiB, fill: count}}}
  two: {memory: {source: {size: 128 KiB, fill: count}}}
  sink: {memory: {first: 128 KiB, second: 128 KiB}}
switches:
  tor:
    buffer: 256 KiB
    queues: {3: {dscp: 26, kmin: 4 KiB, kmax: 40 KiB, xoff: 24 KiB, xon: 16 KiB, headroom: 32 KiB}}
links:
  one-tor: {latency: 1 us, rate: 100 Gbit/s}
  two-tor: {latency: 1 us, rate: 100 Gbit/s}
  tor-sink: {latency: 1 us, rate: 100 Gbit/s}
connections:
  a: {between: [one, sink], dscp: 26, ecn: true, cnp interval: 50 us}
  b: {between: [two, sink], dscp: 26, ecn: true, cnp interval: 50 us}
work:
  - write: {on: one/a, from: one.source, to: sink.first}
  - write: {on: two/b, from: two.source, to: sink.second}
expect:
  packets:
    - {where: {FIELD}, count: 7777, PLACE}
"""

MARKED = """\
name: Marked, lost and doubled on the way
hosts:
  client: {memory: {source: {size: 8 KiB, fill: count}}}
  server: {memory: {sink: 8 KiB}}
links:
  client-server:
    faults:
      - mark: {sent by: client/a, packet: 2..4}
      - duplicate: {sent by: client/a, packet: 4}
connections:
  a: {between: [client, server], ecn: true, cnp interval: 4 us}
work:
  - write: {on: client/a, from: client.source, to: server.sink}
expect:
  packets:
    - {where: {FIELD}, count: 7777, PLACE}
"""


LOSSY = """\
tor-sink:
    latency: 0 us
    rate: 100 Gbit/s
    faults:
      - drop: {sent by: one/a, packet: 5, nth: 1}"""


def scenario_of(text: str, field: str, place: str) -> Scenario:
    """One that expects a number of frames that there are not, and so tells how many there are."""
    filled = text.replace("FIELD", field).replace(", PLACE", f", {place}" if place else "")
    return read_scenario_text(filled)


def found(text: str, field: str, place: str) -> str:
    """How many frames there were, and which was the last one."""
    (said,) = failures_of(play(scenario_of(text, field, place)))
    return said.rpartition("found ")[2].partition("; nearest")[0]


@pytest.mark.parametrize(
    ("field", "value", "point", "arrived"),
    [
        ("macc.opcode", MACControl.PFC, "one-tor", False),
        ("pfc.c3", 1, "one-tor", False),
        ("macc.opcode", MACControl.PFC, "one-tor", True),
        ("ip.ecn", ECN.CE, "tor-sink", False),
        ("ip.ecn", ECN.CE, "tor-sink", True),
    ],
)
def test_on_a_link_counts_what_a_tap_of_it_shows(
    field: str, value: int, point: str, arrived: bool, tmp_path: Path
) -> None:
    path, place = tmp_path / "out.pcapng", f"on: {point}{', arrived: true' if arrived else ''}"
    scenario = scenario_of(INCAST, f"{field}: {value}", place)
    (said,) = failures_of(play(scenario, capture=path, points=[point], arrived=arrived))
    with open_capture(path) as reader:
        numbers = [n for n, r in enumerate(reader, 1) if Fields(r.data).get(field) == value]
    assert numbers
    assert said.endswith(f"found {len(numbers)} (frame {numbers[-1]})")


def test_without_a_link_what_hosts_send_counts() -> None:
    assert found(INCAST, "macc.opcode: PFC", "") == "0"
    assert found(INCAST, "ip.ecn: CE", "") == "0"
    assert found(INCAST, "macc.opcode: PFC", "on: tor-sink") == "0"
    everything = "eth.type: [IPV4, MAC_CONTROL]"
    pauses = int(found(INCAST, "macc.opcode: PFC", "on: one-tor").split()[0])
    hosts = int(found(INCAST, everything, "sent by: one").split()[0])
    answers = int(found(INCAST, everything, "on: one-tor, sent by: sink").split()[0])
    assert int(found(INCAST, everything, "on: one-tor").split()[0]) == hosts + answers + pauses


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("", "0"),
        ("on: client-server", "0"),
        ("on: client-server, arrived: true", "4 (frame 5 of client-server --arrived)"),
        ("arrived: true", "4 (frame 5 of server --arrived)"),
        ("arrived: true, sent by: client", "4 (frame 5 of server --arrived)"),
        ("arrived: true, sent by: server", "0"),
    ],
)
def test_what_faults_did_counts_where_frames_arrive(place: str, said: str) -> None:
    """Packets 2 to 4 are marked, and the fourth comes twice."""
    assert found(MARKED, "ip.ecn: CE", place) == said


def comments(path: Path) -> dict[tuple[str, int], tuple[str, ...]]:
    """By the interface of a frame and its number, those that have any."""
    with open_capture(path) as reader:
        return {
            (reader.interfaces[record.interface].name, number): record.comments
            for number, record in enumerate(reader, 1)
            if record.comments
        }


def test_comments_say_what_faults_did(tmp_path: Path) -> None:
    path, scenario = tmp_path / "out.pcapng", scenario_of(MARKED, "ip.ecn: CE", "")
    marked, doubled = "marked on the link", "duplicated on the link"
    play(scenario, capture=path)
    alone = {("", 2): (marked,), ("", 3): (marked,), ("", 4): (marked, doubled)}
    assert comments(path) == alone
    play(scenario, capture=path, points=["client-server"])
    assert list(comments(path).values()) == list(alone.values())
    play(scenario, capture=path, points=["server"])
    assert comments(path) == {}
    play(scenario, capture=path, points=["client-server"], arrived=True)
    assert comments(path) == {}


def test_a_frame_is_remarked_upon_at_the_link_where_it_happened(tmp_path: Path) -> None:
    """Not where the same bytes went before."""
    path = tmp_path / "out.pcapng"
    text = INCAST.replace("tor-sink: {latency: 1 us, rate: 100 Gbit/s}", LOSSY)
    play(scenario_of(text, "ip.ecn: CE", ""), capture=path)
    assert comments(path) == {}
    play(scenario_of(text, "ip.ecn: CE", ""), capture=path, points=["one-tor"], arrived=True)
    assert comments(path) == {}
    play(scenario_of(text, "ip.ecn: CE", ""), capture=path, points=["one", "tor-sink"])
    (((point, _), said),) = comments(path).items()
    assert (point, said) == ("tor-sink", ("lost on the link",))


def test_a_frame_at_two_points_of_its_link_has_two_numbers(tmp_path: Path) -> None:
    path, points = tmp_path / "out.pcapng", ["client-server", "client"]
    outcome = play(scenario_of(MARKED, "ip.ecn: CE", ""), capture=path, points=points)
    assert outcome.frames == 10 + 8
    assert comments(path)[("client", 4)] == comments(path)[("client-server", 3)]
    assert len(comments(path)) == 6
