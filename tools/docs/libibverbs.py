"""The page of the functions that ``libibverbs.so.1`` has, from the table that the build uses."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Protocol

from csrc.ibverbs.functions import (
    INLINE,
    INLINE_REFUSED,
    PRIVATE_VERSIONS,
    SONAME,
    exports,
)


def page() -> Iterator[str]:
    """Return the lines of the page."""
    public = [one for one in exports() if one.default]
    last = public[-1].version
    yield "# Functions of libibverbs\n"
    yield (
        f"The functions of the `{SONAME}` whose devices are emulated, generated from the table "
        f"that its build uses. It has every symbol of rdma-core's library up to {last}, each with "
        "its version, so that programs of any distribution start with it.\n"
    )
    yield "## Implemented\n"
    yield from by_version(one for one in public if not one.refusal)
    yield f"| by pointers | {_list(INLINE.split())}, `ibv_wc_read_*`, `ibv_wr_*` |"
    yield "\n## Refused\n"
    yield (
        "These return an error with `errno` EOPNOTSUPP, or do nothing if they return no value. "
        "With `RDMAWIRE_TRACE=1` each call prints a line on stderr.\n"
    )
    yield from by_version(one for one in public if one.refusal)
    yield f"| by pointers | {_list(INLINE_REFUSED.split())} |"
    yield "\n## For other libraries of rdma-core\n"
    first, end = PRIVATE_VERSIONS[0], PRIVATE_VERSIONS[-1]
    yield (
        f"The private functions that providers such as libmlx5 and libefa bind to are there with "
        f"the versions `IBVERBS_PRIVATE_{first}` to `IBVERBS_PRIVATE_{end}`, so that programs that "
        "are linked to a provider start. They are refused: a provider finds no device of its own. "
        "So are the functions of IBVERBS_1.0 as they were before 2008."
    )


class Versioned(Protocol):
    """A row of a table of exports."""

    @property
    def name(self) -> str:
        """The name of the function."""

    @property
    def version(self) -> str:
        """Its symbol version."""


def by_version(chosen: Iterable[Versioned]) -> Iterator[str]:
    """Return a table of functions by version, the oldest first."""
    yield "| version | functions |"
    yield "|---|---|"
    rows = sorted(chosen, key=lambda one: [int(n) for n in one.version.split("_")[-1].split(".")])
    for version, group in groupby(rows, key=lambda one: one.version):
        yield f"| {version} | {_list(one.name for one in group)} |"


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
