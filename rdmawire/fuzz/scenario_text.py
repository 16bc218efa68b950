"""Parts of scenarios that play cases of both roles: head, memory of the server, bytes.

Functions yield the lines of YAML; they have no character that could change its structure.
"""

from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.replay_packet import BYTES_OF_LINE, Key
from rdmawire.fuzz.setup import ARENA, FRESH_ARENA, Area, Setup
from rdmawire.ib.rules import Rules
from rdmawire.memory.key import Access
from rdmawire.traffic.scenario.document import ScenarioError
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.types import MAX_TIME, format_size, format_time
from rdmawire.wire.roce import Medium

APART: Final = 10_000
"""Nanoseconds between two inputs: more than a packet and its replies need on the link."""
AREA_NAMES: Final = ("all", "readable", "writable", "slots")
"""Memory of the server: the areas, by the rights of their regions, then the receive slots."""
_USUAL_LIMIT: Final = 10**10
"""The time limit of a scenario that gives none (ns)."""
_WIDTH: Final = 96


def cannot_play(why: str) -> FuzzError:
    """Return the error about a case that a scenario cannot play."""
    return FuzzError(f"a scenario cannot play this case: {why}")


def difference_text(violation: Violation) -> str:
    """Describe a violation in sentences."""
    return (
        f"The fuzzer found a difference at input {violation.place + 1}: {violation.what}. "
        f"Expected: {violation.expected}. Happened: {violation.happened}. "
        f"Clause: {violation.clause or 'none'}."
    )


def check_network(setup: Setup) -> None:
    """Raise :class:`FuzzError` for a network that scenarios do not have."""
    if setup.network.medium is not Medium.ETHERNET:
        sent = setup.network.value.partition(":")[0]
        raise cannot_play(f"its links are Ethernet, not {sent}")


def read(text: str) -> Scenario:
    """Read the text of a scenario. Raises :class:`FuzzError` if it is not valid."""
    try:
        return read_scenario_text(text)
    except ScenarioError as error:
        raise cannot_play(str(error)) from error


def passes(text: str, rules: Rules | None = None) -> bool:
    """Play a scenario, with these rules of the host ``server``; return whether it passes."""
    return play(read(text), rules={} if rules is None else {"server": rules}).passed


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


def head_lines(
    about: str, violation: Violation | None, end: int, limit: int | None = None
) -> Iterator[str]:
    """Yield the first keys of a scenario whose last input is at ``end`` (ns).

    ``limit`` is its time limit (ns); without one it is enough for ``end``.
    """
    signature = "A fuzz case" if violation is None else f"Finding: {violation.signature}"
    yield f'name: "{_printable(signature).translate(_ESCAPES)}"'
    yield "about: >-"
    yield from wrap(_printable(about), _WIDTH, initial_indent="  ", subsequent_indent="  ")
    yield "seed: 1  # the content of the server's memory is that of the fuzz case"
    if limit is None and end >= _USUAL_LIMIT:
        limit = end + _USUAL_LIMIT
    if limit is not None:
        yield f"time limit: {format_time(min(limit, MAX_TIME))}"


_ESCAPES: Final = str.maketrans({'"': '\\"', "\\": "\\\\"})


def comment_lines(text: str) -> Iterator[str]:
    """Yield the lines of a comment between steps; all but the first are indented."""
    yield from wrap(_printable(text), _WIDTH, initial_indent="  # ", subsequent_indent="  #       ")


def digit_lines(name: str, data: bytes, indent: str) -> Iterator[str]:
    """Yield a key whose value is bytes, in several lines if they are many."""
    if len(data) <= BYTES_OF_LINE:
        yield f'{indent}{name}: {{hex: "{data.hex()}"}}'
        return
    yield f"{indent}{name}:"
    yield f"{indent}  hex: >-"
    for start in range(0, len(data), BYTES_OF_LINE):
        yield f"{indent}    {data[start : start + BYTES_OF_LINE].hex()}"


def key_lines(key: Key) -> Iterator[str]:
    """Yield a key of the verb ``inject``."""
    if key.digits:
        yield from digit_lines(key.name, key.digits, "      ")
    else:
        yield f"      {key.name}: {key.value}"


def rights_text(access: int) -> str:
    """Write access rights as a list of their names."""
    names = [flag.name or "" for flag in Access if flag & access]
    return f"[{', '.join(names)}]"


def arena_lines(areas: Iterable[Area]) -> Iterator[str]:
    """Yield the memory of the server: the arena, and the regions within it."""
    yield "    memory:"
    yield "      # Regions within one buffer: the bytes between them must not change."
    yield f"      arena: {{size: {format_size(ARENA)}, fill: random, registered: false}}"
    for name, area in zip(AREA_NAMES, areas, strict=False):
        yield f"      {name}:"
        size, offset = format_size(area.length), format_size(area.start)
        yield f"        {{size: {size}, within: arena, offset: {offset},"
        yield f"         access: {rights_text(area.access)}}}"


def memory_lines(memory: bytes, undefined: Iterable[tuple[int, int]] = ()) -> Iterator[str]:
    """Yield what is expected of the arena, without the parts that are undefined."""
    position = 0
    for start, end in (*sorted(undefined), (len(memory), len(memory))):
        for first, last, data in _runs(memory[position:start], position):
            name = f'"server.arena[{first}:{last}]"'
            if data is None:
                yield f"    {name}: unchanged"
            else:
                yield from digit_lines(name, data, "    ")
        position = max(position, end)


_GAP: Final = 16
"""Unchanged bytes between changed ones that are compared together with them, at most."""


def _runs(memory: bytes, base: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield the parts of memory from ``base`` on: start, end, and the bytes if they changed."""
    position, whole = base, base + len(memory)
    for start, end in _changed(memory, base):
        if start > position:
            yield position, start, None
        yield start, end, memory[start - base : end - base]
        position = end
    if position < whole:
        yield position, whole, None


def _changed(memory: bytes, base: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each part that differs from the fresh arena, from ``base`` on."""
    fresh = FRESH_ARENA[base : base + len(memory)]
    offsets = [
        at for at, (one, other) in enumerate(zip(memory, fresh, strict=True), base) if one != other
    ]
    start = 0
    for index, offset in enumerate(offsets):
        if index + 1 == len(offsets) or offsets[index + 1] - offset > _GAP:
            yield offsets[start], offset + 1
            start = index + 1
