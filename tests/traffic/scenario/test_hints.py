"""What is worth a line although it is no mistake."""

import pytest

from rdmawire.traffic.scenario.hints import hints
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.shipped import read_shipped, shipped

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
NOBODY = "nobody is told of these marks; give a 'cnp interval' to connection"


def found(*, queues: str = "", fault: str = "drop: {nth: 99}", a: str = "", b: str = "") -> str:
    parts = {"QUEUES": queues, "{FAULT}": fault, ", A}": f", {a}}}", ", B}": f", {b}}}"}
    text = TEXT
    for word, part in parts.items():
        text = text.replace(word, part)
    text = text.replace(", }", "}")
    return "\n".join(hint.text("m.yaml") for hint in hints(read_scenario_text(text)))


@pytest.mark.parametrize("tells", ["cnp interval: 4 us", "congestion: dcqcn"])
def test_marks_that_nobody_is_told_of(tells: str) -> None:
    assert found(fault=OF_A, b=tells) == f"m.yaml:5:26: {NOBODY} a"
    assert found(fault=OF_A, a=tells) == ""
    assert found(fault="mark: {}") == f"m.yaml:5:26: {NOBODY} a, b"
    assert found(fault="mark: {}", b=tells) == ""
    assert found(queues=SWITCH, a="congestion: timely").endswith(f"{NOBODY} a, b")
    assert found(queues=SWITCH, a=tells) == ""
    assert found() == ""


def test_shipped_scenarios_need_none() -> None:
    assert [name for name in shipped() if list(hints(read_shipped(name)))] == []
