"""GOAL schedules as text: the Group Operation Assembly Language of LogGOPSim and ATLAHS.

::

    num_ranks 2
    rank 0 {
      l1: calc 100
      l2: send 10b to 1 tag 5 cpu 0 nic 0
      l2 requires l1
    }
    rank 1 {
      l1: recv 10b from 0 tag 5
    }

Facts: the grammar ``txt2bin.re`` of LogGOPSim. A label is defined before it is used; ``-1`` is any
source or any tag of a receive, and so is 4294967295, as Schedgen writes MPI_ANY_TAG; ``calc`` is in
ns. Comments are ``//`` and ``/* */``.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO, Final

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.workload.graph import (
    ANY,
    ANY_32,
    MAX_RANKS,
    Kind,
    Operation,
    Workload,
    add_operation,
)
from rdmawire.terminal import quote

MAX_LINE: Final = 4096
"""Bytes of a line."""
_MAX_DIGITS: Final = 20
_LABEL: Final = r"[A-Za-z][A-Za-z0-9_]*"
_OPERATION: Final = re.compile(
    rf"(?:(?P<label>{_LABEL})\s*:\s*)?"
    r"(?:(?P<calc>calc)\s+(?P<time>\d+)"
    r"|send\s+(?P<sent>\d+)\s*b\s*to\s+(?P<target>\d+)"
    r"|recv\s+(?P<taken>\d+)\s*b\s*from\s+(?P<source>-1|\d+))"
    r"(?:\s+tag\s+(?P<tag>-1|\d+))?(?:\s+cpu\s+(?P<cpu>\d+))?(?:\s+nic\s+(?P<nic>\d+))?",
    re.ASCII,
)
_DEPENDENCY: Final = re.compile(
    rf"(?P<label>{_LABEL})\s+(?P<word>i?requires)\s+(?P<other>{_LABEL})", re.ASCII
)
_HEAD: Final = re.compile(r"\s*(?:num_ranks\s+(?P<ranks>\d+)|rank\s+(?P<rank>\d+)\s*\{)", re.ASCII)
_EXPECTED: Final = "num_ranks, rank N {, send, recv, calc, requires, irequires or }"


def parse_goal(file: BinaryIO, source: str = "GOAL schedule") -> Workload:
    """Read a schedule from a binary ``file``; ``source`` is its name in messages.

    Raises :class:`WorkloadError` for the first error, with its line.
    """
    parser = _Parser(source)
    for line, text in _lines(file, source):
        parser.line = line
        parser.take(text)
    return parser.workload()


def _lines(file: BinaryIO, source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, without comments, and their numbers."""
    number, in_comment = 0, False
    while data := file.readline(MAX_LINE + 1):
        number += 1
        if len(data) > MAX_LINE:
            raise WorkloadError(f"{source}, line {number}: more than {MAX_LINE} bytes in a line")
        if number == 1:
            data = data.removeprefix(BOM_UTF8)  # as editors of Windows begin a file
        try:
            text = data.decode("ascii")
        except UnicodeDecodeError:
            raise WorkloadError(f"{source}, line {number}: no ASCII text") from None
        if in_comment or "/" in text:
            text, in_comment = _uncommented(text, in_comment=in_comment)
        if text := text.strip():
            yield number, text
    if in_comment:
        raise WorkloadError(f"{source}, line {number}: a comment does not end: */ is missing")


def _uncommented(text: str, *, in_comment: bool) -> tuple[str, bool]:
    """Return a line without comments, and whether one goes on in the next line."""
    kept = ""
    while text:
        if in_comment:
            _, end, text = text.partition("*/")
            in_comment = not end
            continue
        found = re.search(r"//|/\*", text)
        if found is None:
            return kept + text, False
        kept += text[: found.start()] + " "
        if found[0] == "//":
            return kept, False
        text, in_comment = text[found.end() :], True
    return kept, in_comment


class _Parser:
    """Takes lines one by one; ``line`` is the number of the current one."""

    def __init__(self, source: str) -> None:
        self.line = 0
        self._source = source
        self._count: int | None = None
        self._ranks: dict[int, list[Operation]] = {}
        self._operations: list[Operation] | None = None
        self._labels: dict[str, int] = {}
        self._rank = 0
        self._total = 0

    @property
    def _where(self) -> str:
        return f"{self._source}, line {self.line}"

    def _error(self, text: str) -> WorkloadError:
        return WorkloadError(f"{self._where}: {text}")

    def take(self, text: str) -> None:
        """Read one line: a statement, or what begins or ends a rank before one."""
        if self._operations is not None and "}" not in text and "{" not in text:
            self._statement(text)
            return
        while text:
            if text[0] == "}":
                self._end_rank()
                text = text[1:].lstrip()
            elif (found := _HEAD.match(text)) is not None:
                self._begin(found)
                text = text[found.end() :].lstrip()
            else:
                statement, brace, rest = text.partition("}")
                self._statement(statement.strip())
                text = brace + rest

    def _begin(self, found: re.Match[str]) -> None:
        if found["ranks"] is not None:
            self._set_count(self._number(found["ranks"]))
            return
        self._rank = self._number(found["rank"])
        if self._count is None:
            raise self._error("a rank before num_ranks")
        if self._operations is not None:
            raise self._error("a rank inside a rank: } is missing")
        if self._rank >= self._count:
            raise self._error(f"rank {self._rank}, but ranks are 0 to {self._count - 1}")
        if self._rank in self._ranks:
            raise self._error(f"rank {self._rank} is there already")
        self._operations = self._ranks[self._rank] = []
        self._labels = {}

    def _set_count(self, count: int) -> None:
        if self._count is not None:
            raise self._error("num_ranks is there already")
        if not 0 < count <= MAX_RANKS:
            raise self._error(f"{count} ranks; 1 to {MAX_RANKS} are supported")
        self._count = count

    def _end_rank(self) -> None:
        if self._operations is None:
            raise self._error("} without a rank")
        self._operations = None

    def _number(self, text: str) -> int:
        if len(text) > _MAX_DIGITS:
            raise self._error(f"a number of {len(text)} digits; at most {_MAX_DIGITS}")
        return int(text)

    def _statement(self, text: str) -> None:
        if self._operations is None:
            raise self._error(f"{quote(text)}: expected num_ranks or rank N {{")
        if (found := _OPERATION.fullmatch(text)) is not None:
            self._add(self._operations, found)
        elif (found := _DEPENDENCY.fullmatch(text)) is not None:
            index, other = (self._labeled(found[name]) for name in ("label", "other"))
            self._operations[index].require(other, start=found["word"] == "irequires")
        else:
            raise self._error(f"{quote(text)}: expected {_EXPECTED}")

    def _labeled(self, label: str) -> int:
        if label not in self._labels:
            raise self._error(f"label {label} is not defined in rank {self._rank} before this line")
        return self._labels[label]

    def _add(self, operations: list[Operation], found: re.Match[str]) -> None:
        label = found["label"] or ""
        if label and self._labels.setdefault(label, len(operations)) != len(operations):
            first = operations[self._labels[label]].line
            raise self._error(f"label {label} is there already, in line {first}")
        add_operation(operations, self._operation(found, label), self._total, self._where)
        self._total += 1

    def _operation(self, found: re.Match[str], label: str) -> Operation:
        stream, nic = self._number(found["cpu"] or "0"), self._number(found["nic"] or "0")
        tag = self._pattern(found["tag"] or "0")
        if found["calc"]:
            if found["tag"]:
                raise self._error("calc has no tag")
            kind, size, peer = Kind.COMPUTE, found["time"], 0
        elif found["sent"]:
            if tag == ANY:
                raise self._error("a send needs a tag: -1 is for receives")
            kind, size, peer = Kind.SEND, found["sent"], self._number(found["target"])
        else:
            kind, size, peer = Kind.RECEIVE, found["taken"], self._pattern(found["source"])
        return Operation(kind, self._number(size), peer, tag, stream, nic, label, self.line)

    def _pattern(self, text: str) -> int:
        """Return a source or a tag, which may be any."""
        number = self._number(text)
        return ANY if number == ANY_32 else number

    def workload(self) -> Workload:
        """Return what was read, at the end of the file."""
        if self._operations is not None:
            raise self._error(f"rank {self._rank} does not end: }} is missing")
        if self._count is None:
            raise WorkloadError(f"{self._source}: no num_ranks; a GOAL schedule begins with it")
        for rank in range(self._count):
            if rank not in self._ranks:
                raise self._error(f"the file ends without rank {rank} of {self._count}")
        return Workload("GOAL", [self._source], [self._ranks[rank] for rank in range(self._count)])
