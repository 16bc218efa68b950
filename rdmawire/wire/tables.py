"""All header tables, in the order of their modules."""

from functools import cache
from importlib import import_module

from rdmawire.wire.header import Header

MODULES = (
    *("inet", "erf", "ib", "management", "mad", "rmpp", "smp", "node_info", "port_info"),
    *("forwarding", "notice", "sa", "sa_record", "perf", "cm", "cm_request", "ip_cm"),
    *("mpa", "ddp", "rdmap", "terminate"),
)
"""The modules of this folder that declare headers."""


def tables() -> list[type[Header]]:
    """Every header table, each once."""
    return [table for name in MODULES for table in tables_of(name)]


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
