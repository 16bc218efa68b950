"""What is said of a golden capture beside it, for test benches: JSON, a line for each thing."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tools.make_captures.golden.case import CLIENT, LATENCY, SERVER
from tools.make_captures.golden.played import EPOCH_NS, Object, Placed

_ENDS = (CLIENT, SERVER)
_LISTS = ("does",)


def sidecar(capture: str, cases: Sequence[Placed]) -> str:
    """The text of the file beside a capture.

    What both ends have in every case, and nearly always the same, stands once, as ``usual``.
    """
    details = [case.played.details for case in cases]
    usual = {who: _usual([one[who] for one in details]) for who in _ENDS if who in details[0]}
    lines = [f'"capture": {_dumped(capture)}']
    lines += [f'"epoch_ns": {EPOCH_NS}', f'"latency_ns": {LATENCY}']
    if usual:
        lines.append(f'"usual": {_block(usual, "")}')
    blocks = (_block(_object(case, usual), "") for case in cases)
    lines.append('"cases": [\n' + ",\n".join(blocks) + "\n]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _usual(ends: Sequence[Object]) -> Object:
    """The values that most of these have, of what all of them have."""
    shared = [key for key in ends[0] if all(key in end for end in ends)]
    found: Object = {}
    for key in shared:
        value, count = Counter(_dumped(end[key]) for end in ends).most_common(1)[0]
        if count > len(ends) // 2:
            found[key] = json.loads(value)
    return found


def _object(case: Placed, usual: Object) -> Object:
    played = case.played
    told: Object = {
        "name": played.name,
        "shows": played.shows,
        "frames": [case.first, case.last],
        "start_ns": case.start,
        **played.details,
    }
    for who, values in usual.items():
        told[who] = {k: v for k, v in told[who].items() if k not in values or v != values[k]}
    return told


def _block(value: Object, indent: str) -> str:
    """An object with a line for each of its entries, and for each of what they list."""
    rows = (f"{indent} {_dumped(key)}: {_entry(key, one, indent)}" for key, one in value.items())
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def _entry(key: str, value: object, indent: str) -> str:
    if key in _LISTS and isinstance(value, list) and value:
        return "[\n" + ",\n".join(_items(value, indent)) + f"\n{indent} ]"
    return _dumped(value)


def _items(values: Iterable[object], indent: str) -> Iterator[str]:
    return (f"{indent}  {_dumped(value)}" for value in values)


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)
