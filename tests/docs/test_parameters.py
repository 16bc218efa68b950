"""The page on congestion control names every parameter of DCQCN as the code has it."""

import re
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

from rdmawire.ib.congestion.dcqcn import DcqcnParameters

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "congestion.md"
_ROW = re.compile(r"^\| (.+?) \| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_UNITS = {"bit/s": "Bits in a second", "ns": "Nanoseconds", "bytes": "Bytes", "times": "Times"}
_LETTERS = {"g", "K", "T", "B", "F", "R_AI", "R_HAI"}


def test_the_table_has_every_parameter_with_its_default() -> None:
    rows = _ROW.findall(PAGE.read_text())
    told = {name: float(Fraction(default.replace(",", ""))) for _, name, _, default, _ in rows}
    assert told == {row.name: row.default for row in fields(DcqcnParameters)}
    assert [name for _, name, *_ in rows] == [row.name for row in fields(DcqcnParameters)]


def test_the_papers_letters_and_units_are_those_of_the_code() -> None:
    source = Path("rdmawire/ib/congestion/dcqcn.py")
    text = (PAGE.parents[2] / source).read_text()
    said = dict(re.findall(r'^    (\w+): \w+ = .*\n    """(.*?)"""', text, re.MULTILINE))
    for letter, name, unit, *_ in _ROW.findall(PAGE.read_text()):
        letters = set(re.findall(r"\((\w+)\)", said[name]))
        assert letters <= {letter.strip("*")}
        assert said[name].startswith(_UNITS.get(unit, "The weight"))
    shown = {letter.strip("*") for letter, *_ in _ROW.findall(PAGE.read_text())}
    assert shown >= _LETTERS
