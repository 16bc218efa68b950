"""The options of `rdmawire edit` that say what becomes of fields, as a table."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from rdmawire.analysis.moment import duration_ns
from rdmawire.screen import quoted
from rdmawire.traffic.edit import text
from rdmawire.traffic.edit.record import Change, later
from rdmawire.traffic.edit.refusal import EditError
from rdmawire.traffic.edit.rule import Rule


class Asked(NamedTuple):
    """A rule, and the option that asked for it."""

    option: str
    rule: Rule


class Kind(NamedTuple):
    """An option that makes rules: all its texts make one, or each its own."""

    metavar: str
    make: Callable[[Sequence[str]], Sequence[Rule]]
    help: str


def _one(make: Callable[[Sequence[str]], Rule]) -> Callable[[Sequence[str]], Sequence[Rule]]:
    return lambda texts: [make(texts)]


def _each(make: Callable[[str], Rule]) -> Callable[[Sequence[str]], Sequence[Rule]]:
    return lambda texts: [make(one) for one in texts]


KINDS = {
    "mac": Kind("OLD=NEW", _one(text.macs), "Map an Ethernet address."),
    "ip": Kind(
        "OLD=NEW", _one(text.ips),
        "Map an IP address, GID or prefix (10.0.0.0/24=192.168.7.0/24), also in CM messages.",
    ),
    "lid": Kind("OLD=NEW", _one(text.lids), "Map a LID."),
    "vlan": Kind("OLD=NEW", _one(text.vlans), "Map a VLAN id."),
    "pkey": Kind("OLD=NEW", _one(text.pkeys), "Map a P_Key."),
    "qpn": Kind(
        "QPN[@HOST]=NEW", _one(text.qpns),
        "Map a queue pair, of all hosts or of one (0x11@10.0.0.1=0x1234), also in CM messages.",
    ),
    "rkey": Kind(
        "KEY[@HOST]=NEW", _one(text.rkeys), "Map an R_Key or STag, of all hosts or of one."
    ),
    "psn-offset": Kind(
        "[QPN[@HOST]=]N", _one(text.psn_offsets),
        "Add to PSNs: to all, or to those of requests to a queue pair and of responses from it.",
    ),
    "va-offset": Kind(
        "[KEY[@HOST]=]N", _one(text.va_offsets),
        "Add to remote addresses: to all, or to those with a key.",
    ),
    "ecn": Kind("ce|ect0|ect1|not", _each(text.ecn), "Set the ECN field of IP."),
    "dscp": Kind("N", _each(text.dscp), "Set the DSCP of IP."),
    "ttl": Kind("N", _each(text.ttl), "Set the TTL or hop limit."),
    "udp-source": Kind("PORT", _each(text.udp_source), "Set the source port of UDP."),
    "set": Kind(
        "FIELD=VALUE", _each(text.assignment),
        "Set any field, by its name in `rdmawire fields` or in the tables; += and -= add.",
    ),
}  # fmt: skip
"""Options by name, in the order in which their rules apply."""

_C = TypeVar("_C", bound=Callable[..., Any])


def rule_options(command: _C) -> _C:
    """Give a command all of :data:`KINDS`; their rules come by their names."""
    for name, kind in reversed(KINDS.items()):
        command = click.option(
            f"--{name}", multiple=True, metavar=kind.metavar, callback=_asked(kind), help=kind.help
        )(command)
    return command


def _asked(kind: Kind) -> Callable[[click.Context, click.Parameter, Sequence[str]], list[Asked]]:
    def asked(ctx: click.Context, option: click.Parameter, texts: Sequence[str]) -> list[Asked]:
        try:
            rules = kind.make(texts) if texts else []
        except EditError as error:
            raise click.BadParameter(str(error), ctx, option) from None
        return [Asked(option.opts[0], rule) for rule in rules]

    return asked


def chosen(by_name: dict[str, list[Asked]]) -> list[Asked]:
    """What was asked for, in the order in which it applies."""
    return [each for name in KINDS for each in by_name[name.replace("-", "_")]]


def tag(ctx: click.Context, option: click.Parameter, said: str | None) -> list[Change]:
    """A VLAN tag, as what it makes of records."""
    if said is None:
        return []
    try:
        return [text.tag(said)]
    except EditError as error:
        raise click.BadParameter(str(error), ctx, option) from None


def time_shift(ctx: click.Context, option: click.Parameter, said: str | None) -> list[Change]:
    """A length of time with or without a sign, as what it makes of records."""
    if said is None:
        return []
    try:
        shift = duration_ns(said.removeprefix("-").removeprefix("+"))
    except ValueError:
        raise click.BadParameter(
            f"{quoted(said)} is no time such as 1.5s or -20ms", ctx, option
        ) from None
    return [later(-shift if said.startswith("-") else shift)]
