"""Reads what programs print: reports of test suites, counts of captures, figures, reasons."""

import re
from collections.abc import Iterator
from typing import Final

from tools.acceptance.case import Frames, Report, UnitTest

_UNIT_TEST: Final = re.compile(r"^(\w+) \(([\w.]+)\)$")
_OUTCOME: Final = re.compile(r"\.\.\. (ok|FAIL|ERROR|skipped|expected failure)\b ?(.*)$")
_BARE_OUTCOME: Final = re.compile(r"^(ok|FAIL|ERROR|skipped .*)$")
_FAILED: Final = re.compile(r"^(?:FAIL|ERROR): (\w+) \(([\w.]+)\)$")
_RAISED: Final = re.compile(r"\w[\w.]*(Error|Exception)")
_BETWEEN_TESTS: Final = "=" * 70
_FIGURE_HEAD: Final = re.compile(r"^ *#bytes")
_ROW: Final = re.compile(r"^[\s\d.]*\d[\s\d.]*$")
_FINAL: Final = re.compile(r"^Final: +\d+ +[\d.]+ +([\d.]+)", re.MULTILINE)
"""Columns: iterations; typical, average and overall latency; bandwidth; message rate."""
_FRAMES: Final = re.compile(r"(\d+) frames?\b")
_BAD_ICRC: Final = re.compile(r"\bICRC [^;]*?(\d+) bad")
_MALFORMED: Final = re.compile(r"(\d+) malformed")
_REASONS: Final = re.compile(
    r"(?i)error|fail|unable|could ?n.t|cannot|not supported|invalid|denied|mismatch|refused"
)
_MAX_REASON: Final = 160
_TESTS: Final = {
    Report.CARGO: re.compile(
        r"^test (?P<name>.+?) \.\.\. (?P<outcome>ok|FAILED|ignored)(?:, (?P<reason>.*))?$",
        re.MULTILINE,
    ),
    Report.PYTEST: re.compile(
        r"^\S*?(?P<name>[\w.]+::\S+) (?P<outcome>PASSED|FAILED|ERROR|SKIPPED|XFAIL)"
        r"(?: \((?P<reason>.*)\))?",
        re.MULTILINE,
    ),
}
"""Lines of tests of ``cargo test`` and of ``pytest -v``."""
_OUTCOMES: Final = {
    **dict.fromkeys(("ok", "PASSED"), "ok"),
    **dict.fromkeys(("ignored", "SKIPPED"), "skipped"),
    "FAILED": "FAIL",
    "ERROR": "ERROR",
    "XFAIL": "expected failure",
}
"""Outcomes in the words of unittest."""


def unit_tests(report: Report, output: str) -> tuple[UnitTest, ...]:
    """Return the tests that a test suite says it ran."""
    if report is Report.UNITTEST:
        return _of_unittest(output)
    return tuple(
        UnitTest(found["name"], _OUTCOMES[found["outcome"]], found["reason"] or "")
        for found in _TESTS[report].finditer(output)
    )


def _of_unittest(report: str) -> tuple[UnitTest, ...]:
    """Return the tests of a report of ``unittest -v``. One without an outcome did not end."""
    reasons = dict(_reasons(report))
    return tuple(
        UnitTest(name, outcome, reason or reasons.get(name, ""))
        for name, outcome, reason in _outcomes(report)
    )


def _outcomes(report: str) -> Iterator[tuple[str, str, str]]:
    name = ""
    for line in report.split(_BETWEEN_TESTS, 1)[0].splitlines():
        if started := _UNIT_TEST.match(line.split(" ... ")[0]):
            if name:
                yield name, "no end", ""
            name = _short(started[2], started[1])
        if name and (found := _OUTCOME.search(line) or _BARE_OUTCOME.match(line)):
            outcome, _, rest = found[0].removeprefix("... ").partition(" ")
            yield name, outcome, rest.strip("'\"")
            name = ""
    if name:
        yield name, "no end", ""


def _short(path: str, test: str) -> str:
    """Return ``Class.test`` from the path of a test, which ends in the test's name since 3.11."""
    parts = path.split(".")
    owner = parts[-2] if parts[-1] == test else parts[-1]
    return f"{owner}.{test}"


def _reasons(report: str) -> Iterator[tuple[str, str]]:
    """Yield the failed tests with the last line of their tracebacks."""
    for block in report.split(_BETWEEN_TESTS)[1:]:
        lines = [line for line in block.splitlines() if line]
        failed = _FAILED.match(lines[0]) if lines else None
        if failed:
            reason = (
                line for line in reversed(lines) if re.match(r"\w[\w.]*(Error|Exception)", line)
            )
            yield _short(failed[2], failed[1]), shortened(next(reason, ""))


def captured(report: str) -> Frames:
    """Return the counts that `rdmawire dissect -q` prints."""
    counts = (_FRAMES, _BAD_ICRC, _MALFORMED)
    return Frames(*(int(found[1]) if (found := count.search(report)) else 0 for count in counts))


def measured(output: str) -> str:
    """Return the figure that perftest or ucx_perftest prints: the last row of its table."""
    if found := _FINAL.search(output):
        return f"{found[1]} us"
    head, values = last_row(output)
    if "t_typical" in head and len(values) > 4:
        return f"{values[4]:g} us"
    return f"{values[3]:.0f} MiB/s" if "MB/sec" in head and len(values) > 3 else ""


def last_row(output: str) -> tuple[str, list[float]]:
    """Return the head of perftest's table and the numbers of its last row; empty without one."""
    head, values = "", []
    for line in output.splitlines():
        if _FIGURE_HEAD.match(line):
            head = line
        elif head and _ROW.match(line):
            values = [float(word) for word in line.split()]
    return head, values


def reason(output: str) -> str:
    """Return the line of an output that says best why a program failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -\t")]
    said = [line for line in lines if _REASONS.search(line)]
    return shortened((said or lines or ["it printed nothing"])[0])


def shortened(text: str) -> str:
    """Return a text as one line of a table."""
    line = " ".join(text.split()).replace("|", "/")
    return line if len(line) <= _MAX_REASON else f"{line[: _MAX_REASON - 3]}..."
