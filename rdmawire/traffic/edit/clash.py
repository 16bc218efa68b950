"""Rules that set the same bits: all read the frame as it was, so one of them would be in vain."""

from collections.abc import Mapping, Sequence
from itertools import product

from rdmawire.traffic.edit.cut import Field
from rdmawire.traffic.edit.rule import Rule
from rdmawire.wire.header import Header
from rdmawire.wire.tables import tables

Touched = Mapping[type[Header], Sequence[Field]]
"""The fields that a rule may change, by their header."""


def touched(rule: Rule) -> Touched:
    """What a rule may change, of all headers that there are."""
    found = ((table, rule.fields(table)) for table in tables())
    return {table: fields for table, fields in found if fields}


def shared(one: Touched, other: Touched) -> Field | None:
    """A field of one that the other sets too, or of which it sets a part."""
    pairs = (pair for table in one if table in other for pair in product(one[table], other[table]))
    return next((field for field, another in pairs if field.overlaps(another)), None)
