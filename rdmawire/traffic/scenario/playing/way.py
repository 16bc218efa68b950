"""How the ends of connections find each other: one row for each way that plans have."""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from rdmawire.traffic.scenario.playing.connecting import Introductions
from rdmawire.traffic.scenario.playing.lane import Lane

Act: TypeAlias = Callable[[Introductions, list[Lane], int], None]
"""Does something for a connection's lanes; connections are numbered in their order."""


class Way(NamedTuple):
    """``prepare`` comes before receives are posted, ``ask`` after that.

    ``managed`` says that both hosts have connection managers.
    """

    managed: bool
    prepare: Act
    ask: Act


def _bring_up(_: Introductions, lanes: list[Lane], __: int) -> None:
    for lane in lanes:
        lane.bring_up()
        lane.peer.bring_up()


def _rest(_: Introductions, __: list[Lane], ___: int) -> None:
    """All is done."""


def _ask(introductions: Introductions, lanes: list[Lane], order: int) -> None:
    for lane in lanes:
        introductions.ask(lane, order)


WAYS: Final = {
    "at once": Way(managed=False, prepare=_bring_up, ask=_rest),
    "cm": Way(managed=True, prepare=Introductions.prepare, ask=_ask),
}
"""By what a plan says for ``connect``."""
