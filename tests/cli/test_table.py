"""Tables that are wider than the terminal are cut between columns; summaries, as text and JSON."""

import io
import json

import pytest

from rdmawire.cli import table as aligned
from rdmawire.cli.table import rows, write_summary
from rdmawire.stats.table import ReportColumn, ReportTable
from rdmawire.traffic.summary import NOTHING, Moved, TrafficSummary

HEADS = [ReportColumn("who", False), *(ReportColumn(name) for name in ("one", "two", "three"))]
TABLE = ReportTable("a table", HEADS, [["a", "1", "22", "333"]], 0, 1)


@pytest.mark.parametrize(
    ("width", "wanted"),
    [
        (100, [["who", "one", "two", "three"]]),
        (23, [["who", "one", "two"], ["who", "three"]]),
        (5, [["who", "one"], ["who", "two"], ["who", "three"]]),
    ],
)
def test_each_part_fits_and_has_the_heads_of_rows(width: int, wanted: list[list[str]]) -> None:
    parts = list(aligned.parts(TABLE, width))
    assert [[column.name for column in part.columns] for part in parts] == wanted
    assert {part.rows[0][0] for part in parts} == {"a"}
    assert sum(len(part.rows[0]) - 1 for part in parts) == 3


def test_what_harms_a_terminal_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    aligned.show(TABLE._replace(rows=[["\x1b[2J", "1", "2", "3"]]))
    assert "\x1b" not in capsys.readouterr().out


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


def test_counts_of_faults_are_shown_unless_they_are_zero() -> None:
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
