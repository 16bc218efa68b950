"""A trial of a service: its name, size and result, and the check that nothing is left of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.acceptance.service import Service, Usage, wait_for

_END_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of one trial; ``what`` says in words what went right or wrong."""

    name: str
    passed: bool
    what: str


@dataclass(frozen=True, slots=True)
class Size:
    """How much the trials do."""

    processes: int = 64
    queue_pairs: int = 1000
    kills: int = 300
    """Programs that are killed, one after another."""
    minutes: float = 2.0
    """Duration of the endurance trials together."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A trial that can be run. ``run`` returns in words what went right, or raises TrialError."""

    name: str
    run: Callable[[Service, Path, Size], str]
    options: tuple[str, ...] = ()
    """Options of the service."""


class TrialError(Exception):
    """A trial failed; the text says why."""


def left(service: Service, before: Usage) -> str:
    """Wait until nothing is left of programs, and return this in words; ``TrialError`` after 60 s.

    The service must hold what it held ``before`` them, and no object. Its resident memory is not
    compared.
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
