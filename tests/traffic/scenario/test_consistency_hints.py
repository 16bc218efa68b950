"""What is worth a line although it is no mistake."""

import pytest

from rdmawire.traffic.scenario.consistency import hints
from rdmawire.traffic.scenario.reader import read_scenario_text, read_shipped, shipped

TEXT = """\
name: Marks
hosts: {client: {memory: {source: 8 KiB}}, server: {memory: {sink: 8 KiB}}}
switches: {leaf: {QUEUES}}
links:
  client-leaf: {faults: [{FAULT}]}
  leaf-server: {}
connections:
  a: {between: [client, server], ecn: true, A}
  b: {between: [client, server], ecn: true, B}
work:
  - write: {on: client/a, from: client.source, to: server.sink}
"""
SWITCH = "queues: {0: {dscp: 0, kmin: 4 KiB, kmax: 8 KiB}}"
OF_A = "mark: {sent by: client/a}"
LINKS = ("client-leaf", "leaf-server")
NOBODY = "no CNP reports these marks; give a 'cnp interval' to connection"


def filled(*, queues: str = "", fault: str = "drop: {nth: 99}", a: str = "", b: str = "") -> str:
    parts = {"QUEUES": queues, "{FAULT}": fault, ", A}": f", {a}}}", ", B}": f", {b}}}"}
    text = TEXT
    for word, part in parts.items():
        text = text.replace(word, part)
    return text.replace(", }", "}")


def found(**parts: str) -> str:
    scenario = read_scenario_text(filled(**parts))
    return "\n".join(hint.text("m.yaml") for hint in hints(scenario))


@pytest.mark.parametrize("tells", ["cnp interval: 4 us", "congestion: dcqcn"])
def test_a_hint_for_marks_without_cnps(tells: str) -> None:
    assert found(fault=OF_A, b=tells) == f"m.yaml:5:26: {NOBODY} a"
    assert found(fault=OF_A, a=tells) == ""
    assert found(fault="mark: {}") == f"m.yaml:5:26: {NOBODY} a, b"
    assert found(fault="mark: {}", b=tells) == ""
    assert found(queues=SWITCH, a="congestion: timely").endswith(f"{NOBODY} a, b")
    assert found(queues=SWITCH, a=tells) == ""
    assert found() == ""


def test_what_cannot_be_marked_needs_nobody_who_tells() -> None:
    text = filled(fault="mark: {}").replace("ecn: true", "ecn: false", 1)
    assert [hint.said for hint in hints(read_scenario_text(text))] == [f"{NOBODY} b"]
    text = filled(fault=OF_A, queues=SWITCH).replace("ecn: true", "ecn: false")
    assert list(hints(read_scenario_text(text))) == []


def unseen(packets: str, *, fault: str = "drop: {nth: 99}", queues: str = "") -> str:
    """What is said of an expectation of packets."""
    told = {"a": "cnp interval: 4 us", "b": "cnp interval: 4 us"}
    text = filled(fault=fault, queues=queues, **told) + f"expect: {{packets: [{packets}]}}\n"
    return "\n".join(hint.said for hint in hints(read_scenario_text(text)))


def test_frames_that_cannot_be_where_they_are_counted() -> None:
    assert "say 'on' which link" in unseen("{where: {macc.opcode: PFC}, count: 0}")
    assert unseen("{where: {macc.opcode: PFC}, count: 0, on: client-leaf}") == ""
    assert unseen("{where: {pfc.c3: 1}, count: 0, arrived: true}") == ""
    assert "hosts send no frame with CE" in unseen("{where: {ip.ecn: CE}, count: 0}")
    assert "hosts send no frame with CE" in unseen("{where: {ipv6.ecn: [CE]}, count: 0}")
    assert unseen("{where: {ip.ecn: [ECT_0, CE]}, count: 0}") == ""
    assert unseen("{where: {ip.ecn: 0..3}, count: 0}") == ""
    assert unseen("{where: {ip.ecn: CE}, count: 0, arrived: true}") == ""


def test_a_mark_of_the_link_itself_is_seen_where_frames_arrive() -> None:
    here, there = (f"{{where: {{ip.ecn: CE}}, count: 1, on: {link}}}" for link in LINKS)
    said = unseen(here, fault="mark: {}")
    assert said == "this link marks what is put on it, so CE is seen with 'arrived: true'"
    assert unseen(here, fault="mark: {}", queues=SWITCH) == ""
    assert unseen(there, fault="mark: {}") == ""
    assert unseen(here) == ""


def test_shipped_scenarios_need_none() -> None:
    assert [name for name in shipped() if list(hints(read_shipped(name)))] == []
