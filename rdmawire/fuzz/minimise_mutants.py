"""Minimise what makes a parser fail: fewer frames, fewer mutations, fewer bytes.

A change is kept if the violation keeps its signature.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from rdmawire.fuzz.frame_map import NO_FRAME
from rdmawire.fuzz.frame_mutation import Mutant, Mutation, SeedFrame
from rdmawire.fuzz.minimise import Trials
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.parser_target import Parser

MAX_TRIALS: Final = 1000
"""Calls of the parser at most to minimise one case."""

_Item = TypeVar("_Item")
Mutants = tuple[Mutant, ...]


def built(mutants: Sequence[Mutant]) -> list[SeedFrame]:
    """Return the frames of mutants."""
    return [one.seed._replace(data=one.build()) for one in mutants]


def fewest(items: Sequence[_Item], shows: Callable[[Sequence[_Item]], bool]) -> Sequence[_Item]:
    """Remove runs of items, long ones first, as long as ``shows`` is true for the rest."""
    size = max(len(items) // 2, 1)
    while size and items:
        index = 0
        while index < len(items):
            rest = [*items[:index], *items[index + size :]]
            if shows(rest):
                items = rest
            else:
                index += size
        size //= 2
    return items


def minimise_bytes(data: bytes, shows: Callable[[bytes], bool]) -> bytes:
    """Return the fewest bytes, then as many zeros as possible, for which ``shows`` is true."""
    data = bytes(fewest(data, lambda rest: shows(bytes(rest))))
    for index in range(len(data)):
        other = data[:index] + b"\0" + data[index + 1 :]
        if data[index] and shows(other):
            data = other
    return data


def minimise_mutants(
    parser: Parser, mutants: Mutants, found: Violation, trials: Trials | None = None
) -> tuple[Mutants, Violation]:
    """Return the smallest case with the signature of ``found``, and its violation.

    The frames of the result are still frames: mutations are removed, and bytes only of seeds that
    are not frames. Cases are parsed as ``trials`` allow, by default :data:`MAX_TRIALS`.
    """
    left = Trials(MAX_TRIALS) if trials is None else trials
    best, shown = mutants, found

    def shows(other: Sequence[Mutant]) -> bool:
        nonlocal best, shown
        if not other or not left.take():
            return False
        again = parser.judge(built(other))
        if again is None or again.signature != found.signature:
            return False
        best, shown = tuple(other), again
        return True

    if not shows(mutants):
        return mutants, found
    fewest(best, shows)
    for index in range(len(best)):
        _simplify(index, lambda: best, shows)
    return best, shown


def _simplify(
    index: int, now: Callable[[], Mutants], shows: Callable[[Sequence[Mutant]], bool]
) -> None:
    """Make the mutant at ``index`` simpler; ``now`` returns the best case so far."""

    def shows_one(one: Mutant) -> bool:
        mutants = now()
        return one != mutants[index] and shows((*mutants[:index], one, *mutants[index + 1 :]))

    def shows_mutations(mutations: Sequence[Mutation]) -> bool:
        return shows_one(now()[index].with_mutations(mutations))

    shows_mutations(())
    fewest(now()[index].mutations, shows_mutations)
    shows_one(replace(now()[index], checksum="GOOD"))
    one = now()[index]
    if one.seed.link_type == NO_FRAME:
        start = one.seed._replace(data=one.build())
        if not one.mutations or shows_one(Mutant(start)):
            minimise_bytes(start.data, lambda data: shows_one(Mutant(start._replace(data=data))))
