"""What frames mean: dissection trees, their fields and lines."""

from rdmawire.dissect.dissection import Dissection, Severity, Summary, summary
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.fields import FieldInfo, fields
from rdmawire.dissect.node import Check, Derived, Extra, Node
from rdmawire.dissect.output import as_object
from rdmawire.dissect.select import FieldError, Selection
from rdmawire.dissect.tree import hex_dump, items, tree

__all__ = [
    "Check",
    "Derived",
    "Dissection",
    "Dissector",
    "Extra",
    "FieldError",
    "FieldInfo",
    "Node",
    "Selection",
    "Severity",
    "Summary",
    "as_object",
    "fields",
    "hex_dump",
    "items",
    "summary",
    "tree",
]
