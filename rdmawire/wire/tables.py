"""All header tables, in the order of their modules, and registration of further headers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, wraps
from importlib import import_module
from typing import Any, Final, ParamSpec, TypeVar

from rdmawire.wire.codec import BIG
from rdmawire.wire.header import Header

MANAGEMENT = ("management", "mad", "rmpp", "smp", "notice", "sa", "perf", "cm")
IWARP = ("mpa", "rdmap", "terminate")
MODULES = ("inet", "erf", "ib", *MANAGEMENT, *IWARP)
"""The modules of this folder that declare headers."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
MAX_OWN_RESULTS: Final = 1024
_OWN: Final[ContextVar[tuple[type[Header], ...]]] = ContextVar("own header tables", default=())


@contextmanager
def known_headers(*headers: type[Header]) -> Iterator[None]:
    """Add ``headers`` to the known field names, in filters and edits, within a ``with`` block.

    Objects made in the block remain valid after it::

        with known_headers(TagETH):
            wanted = Filter("rdmawire.tageth.tag == 7")

    Raises ``ValueError`` for a header whose label another one has, ``TypeError`` for a
    little-endian one.
    """
    check_order(*headers)
    _check_labels(headers)
    token = _OWN.set(_OWN.get() + headers)
    try:
        yield
    finally:
        _OWN.reset(token)


def check_order(*headers: type[Header]) -> None:
    """Raise ``TypeError`` for a little-endian header: only its own codec reads and builds it."""
    if little := [table.__name__ for table in headers if table.order != BIG]:
        raise TypeError(f"{little[0]} is little-endian: its own codec alone reads and builds it")


def _check_labels(headers: tuple[type[Header], ...]) -> None:
    known = {table.label: table for table in tables()}
    for header in headers:
        other = known.setdefault(header.label, header)
        if other is not header:
            reason = f"the label of {other.__name__} in {other.__module__}"
            raise ValueError(f"{header.label!r} is {reason}: give another (Header, label=...)")


def cached_by_tables(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Cache the results of a function that searches :func:`tables`; its arguments are hashable.

    Results with headers of :func:`known_headers` are kept by these headers, the latest
    :data:`MAX_OWN_RESULTS` of each function.
    """
    cached = cache(function)

    @lru_cache(MAX_OWN_RESULTS)
    def cached_by(_: tuple[type[Header], ...], *args: Any, **kwargs: Any) -> _Result:
        return function(*args, **kwargs)

    @wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        own = _OWN.get()
        return cached_by(own, *args, **kwargs) if own else cached(*args, **kwargs)  # type: ignore[arg-type]

    return call


def tables() -> list[type[Header]]:
    """Every header table, each once."""
    return [*tables_of(*MODULES), *_OWN.get()]


@cache
def tables_of(*names: str) -> tuple[type[Header], ...]:
    """The header tables that these modules of this folder declare."""
    return tuple(
        value
        for module in [import_module(f"rdmawire.wire.{name}") for name in names]
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Header) and value.rows
        if value.__module__ == module.__name__
    )
