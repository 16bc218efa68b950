"""Numbers that nothing else has: counted, or drawn from a source that may be anything."""

from collections.abc import Callable
from copy import deepcopy
from errno import ENOMEM
from random import Random, SystemRandom

import pytest

from rdmawire.errors import VerbsError
from rdmawire.identifier import MAX_DRAWS, Count, Counted, Drawn, Numbers


class Script:
    """Draws what it was told to, the last of it again and again."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)
        self.draws = 0

    def getrandbits(self, k: int, /) -> int:
        del k
        self.draws += 1
        return self.numbers[min(self.draws, len(self.numbers)) - 1]


def drawn(*numbers: int, first: int = 1, end: int = 10) -> Drawn:
    return Drawn(Script(*numbers), 8, first, end)


def test_a_number_is_drawn_again_while_it_does_not_do() -> None:
    assert drawn(5).unused(set().__contains__) == 5
    assert drawn(0, 12, 3, 4).unused({3}.__contains__) == 4


def test_a_source_that_repeats_itself_is_given_up_and_numbers_are_counted() -> None:
    script = Script(3)
    numbers = Drawn(script, 8, 1, 10)
    taken: set[int] = set()
    for _ in range(9):
        taken.add(numbers.unused(taken.__contains__))
    assert taken == set(range(1, 10))
    assert script.draws == 1 + 8 * MAX_DRAWS


@pytest.mark.parametrize("stuck", [0, 9, 200])
def test_counting_goes_round(stuck: int) -> None:
    assert drawn(stuck).unused({9, 1}.__contains__) == 2


@pytest.mark.parametrize("make", [lambda: drawn(3, end=4), lambda: Counted(1, 4)])
def test_where_all_numbers_are_taken_there_is_none(make: Callable[[], Numbers]) -> None:
    with pytest.raises(VerbsError) as full:
        make().unused({1, 2, 3}.__contains__)
    assert full.value.errno == ENOMEM


def test_counted_numbers_are_not_used_again_until_all_were() -> None:
    numbers = Counted(1, 5)
    assert [numbers.unused(set().__contains__) for _ in range(6)] == [1, 2, 3, 4, 1, 2]
    assert numbers.unused({3, 4}.__contains__) == 1


def test_a_copy_counts_and_draws_on_by_itself() -> None:
    count, seeded = Count(5), Drawn(Random(1), 32, 0, 1 << 32)
    assert next(count) == 5
    copied = deepcopy((count, seeded))
    for numbers in ((count, seeded), copied):
        assert next(numbers[0]) == 6
    draws = [numbers.unused(set().__contains__) for numbers in (seeded, copied[1])]
    assert draws[0] == draws[1]


def test_entropy_is_shared_by_copies() -> None:
    numbers = Drawn(SystemRandom(), 8, 0, 256)
    assert 0 <= deepcopy(numbers).unused(set().__contains__) < 256
