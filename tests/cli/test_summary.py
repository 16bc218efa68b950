"""Summaries as people and machines read them."""

import io
import json

import pytest

from rdmawire.cli.table import rows, write_summary
from rdmawire.traffic.summary import NOTHING, Moved, TrafficSummary

SUMMARY: TrafficSummary = NOTHING._replace(
    messages=1234,
    bytes=5_000_000,
    naks=2,
    paths={"gpu_direct": Moved(5_000_000, 4000, 0)},
    virtual_ns=1_500_000_001,
    wall_s=0.25,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_trouble_is_said_only_where_there_is_any() -> None:
    said = dict(rows(SUMMARY))
    assert said["messages"] == "1,234"
    assert said["retransmits"] == said["CNPs"] == "0"
    assert said["by GPUDirect"] == "5,000,000 bytes in 4,000 DMAs, 0 copies"
    assert said["virtual time"] == "1.500000001 s"
    assert not {"frames lost", "messages failed", "ECN marks", "RNR NAKs"} & said.keys()
    assert dict(rows(SUMMARY._replace(lost=3)))["frames lost"] == "3"


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_table_has_a_line_for_each_count(stream: io.StringIO) -> None:
    write_summary(SUMMARY, as_json=False, to=stream)
    lines = [line for line in stream.getvalue().splitlines() if line.strip()]
    assert len(lines) == len(list(rows(SUMMARY)))
    for line, (name, value) in zip(lines, rows(SUMMARY), strict=True):
        assert name in line
        assert value in line


def test_json_has_every_count_by_name() -> None:
    stream = io.StringIO()
    write_summary(SUMMARY, as_json=True, to=stream)
    found = json.loads(stream.getvalue())
    assert found.keys() == set(TrafficSummary._fields)
    assert found["paths"]["gpu_direct"] == {"bytes": 5_000_000, "transactions": 4000, "copies": 0}
