"""Tables that are wider than the terminal are cut between columns."""

import pytest

from rdmawire.cli import table as aligned
from rdmawire.stats.table import ReportColumn, ReportTable

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
def test_each_part_fits_and_says_what_its_rows_are_about(
    width: int, wanted: list[list[str]]
) -> None:
    parts = list(aligned.parts(TABLE, width))
    assert [[column.name for column in part.columns] for part in parts] == wanted
    assert {part.rows[0][0] for part in parts} == {"a"}
    assert sum(len(part.rows[0]) - 1 for part in parts) == 3


def test_what_harms_a_terminal_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    aligned.show(TABLE._replace(rows=[["\x1b[2J", "1", "2", "3"]]))
    assert "\x1b" not in capsys.readouterr().out
