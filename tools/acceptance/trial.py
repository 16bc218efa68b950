"""A trial of a service: what it is called, how much it does, and what must not be left of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.acceptance.service import Service, Usage, wait_for

_END_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one trial."""

    name: str
    passed: bool
    what: str


@dataclass(frozen=True, slots=True)
class Size:
    """How much is tried."""

    processes: int = 64
    queue_pairs: int = 1000
    kills: int = 300
    """Programs that are killed, one after another."""
    minutes: float = 2.0
    """Duration of the endurance trials together."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A trial that can be run. ``run`` returns what went right, or raises :class:`TrialError`."""

    name: str
    run: Callable[[Service, Path, Size], str]
    options: tuple[str, ...] = ()
    """Options of the service."""


class TrialError(Exception):
    """What a trial found wrong."""


def left(service: Service, before: Usage) -> str:
    """Return that nothing is left of programs; ``TrialError`` if there is.

    ``before`` is what the service held before them. Its resident memory is not compared.
    """

    def clean() -> bool:
        now = service.usage()
        counts = now.descriptors <= before.descriptors and now.threads <= before.threads
        shared = now.shared_mappings <= before.shared_mappings
        return counts and shared and not any(service.objects().values())

    if not wait_for(clean, _END_SECONDS):
        raise TrialError(
            f"before {before.text()}, afterwards {service.usage().text()},"
            f" objects {service.objects()}"
        )
    return "nothing is left"
