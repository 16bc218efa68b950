"""All cases, by the table of each package."""

from collections.abc import Iterator

from tools.acceptance import (
    bindings,
    frameworks,
    ibverbs_utils,
    migration,
    mpi,
    perftest,
    rdmacm_utils,
    storage,
)
from tools.acceptance.case import Case

TABLES = (
    ibverbs_utils,
    perftest,
    rdmacm_utils,
    frameworks,
    mpi,
    storage,
    migration,
    bindings,
)


def all_cases() -> Iterator[Case]:
    """Yield every case, in the order of the page."""
    for table in TABLES:
        yield from table.cases()


def chosen(patterns: tuple[str, ...]) -> list[Case]:
    """Return the cases that have one of the texts in what the page shows; all without texts."""
    return [
        case
        for case in all_cases()
        if not patterns or any(pattern in _shown(case) for pattern in patterns)
    ]


def _shown(case: Case) -> str:
    return f"{case.package.title}: {case.options} {case.transport} {case.where}"
