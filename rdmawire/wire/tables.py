"""All header tables, in the order of their modules, and headers of your own beside them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from importlib import import_module
from typing import Final, ParamSpec, TypeVar

from rdmawire.wire.header import Header

MODULES = (
    *("inet", "erf", "ib", "management", "mad", "rmpp", "smp", "node_info", "port_info"),
    *("forwarding", "notice", "sa", "sa_record", "perf", "cm", "cm_request", "ip_cm"),
    *("mpa", "ddp", "rdmap", "terminate"),
)
"""The modules of this folder that declare headers."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_OWN: Final[ContextVar[tuple[type[Header], ...]]] = ContextVar("own header tables", default=())


@contextmanager
def known_headers(*headers: type[Header]) -> Iterator[None]:
    """Have names of fields, in filters and edits, include those of ``headers`` meanwhile.

    What is made in the block keeps working after it::

        with known_headers(TagETH):
            wanted = Filter("rdmawire.tageth.tag == 7")
    """
    token = _OWN.set(_OWN.get() + headers)
    try:
        yield
    finally:
        _OWN.reset(token)


def cached_by_tables(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Cache what a function of hashable arguments finds in :func:`tables`.

    Nothing is kept of the headers that :func:`known_headers` adds.
    """
    cached = cache(function)

    @wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return function(*args, **kwargs) if _OWN.get() else cached(*args, **kwargs)  # type: ignore[arg-type]

    return call


def tables() -> list[type[Header]]:
    """Every header table, each once."""
    return [table for name in MODULES for table in tables_of(name)] + [*_OWN.get()]


@cache
def tables_of(name: str) -> tuple[type[Header], ...]:
    """The header tables that a module of this folder declares."""
    module = import_module(f"rdmawire.wire.{name}")
    return tuple(
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Header) and value.rows
        if value.__module__ == module.__name__
    )
