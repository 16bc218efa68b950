"""The options of `rdmawire edit` that say what becomes of fields, as a table."""

import re
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from rdmawire.screen import quoted, shortened
from rdmawire.traffic.edit import text
from rdmawire.traffic.edit.clash import shared, touched
from rdmawire.traffic.edit.map_file import Maps, read_maps
from rdmawire.traffic.edit.naming import fields_named
from rdmawire.traffic.edit.record import Change, later
from rdmawire.traffic.edit.refusal import EditError
from rdmawire.traffic.edit.rule import Rule
from rdmawire.units import parse_duration


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


def _assignment(said: str) -> Rule:
    """``FIELD=VALUE``; what only filters know is told from what nobody knows."""
    try:
        return text.assignment(said)
    except EditError:
        name = re.split(r"[-+]?=", said, maxsplit=1)[0]
        if not _is_for_filters_alone(name):
            raise
    kept = "filters know it, but no header of a frame has it, so it cannot be set"
    hint = "; --time-shift moves frames in time" if name.startswith("frame.time") else ""
    raise EditError(f"{quoted(said)}: {kept}{hint}")


def _is_for_filters_alone(name: str) -> bool:
    from rdmawire.analysis.fields import fields

    try:
        fields_named(name)
    except EditError:
        return any(name == each.name for each in fields())
    return False


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
        "FIELD=VALUE", _each(_assignment),
        "Set any field, by its name in `rdmawire fields` or in the tables; += and -= add.",
    ),
}  # fmt: skip
"""Options by name, in the order in which their rules apply."""

_MAPS = "rdmawire.edit.maps"
"""Where a context keeps what files of maps say, until the options for it are looked at."""
_C = TypeVar("_C", bound=Callable[..., Any])


def rule_options(command: _C) -> _C:
    """Give a command all of :data:`KINDS`; their rules come by their names."""
    for name, kind in reversed(KINDS.items()):
        command = click.option(
            f"--{name}", multiple=True, metavar=kind.metavar, callback=_asked(kind), help=kind.help
        )(command)
    return click.option(
        "--map", "maps", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
        is_eager=True, expose_value=False, callback=_read_maps,
        help="Take maps from a file too: lines OLD=NEW below [ip], [mac], [qpn], [rkey] and such.",
    )(command)  # fmt: skip


def _read_maps(ctx: click.Context, option: click.Parameter, paths: Sequence[Path]) -> None:
    """Keep what files say for the options that the same could have been said with."""
    known: Maps = ctx.meta.setdefault(_MAPS, {})
    for path in paths:
        try:
            found = read_maps(path)
        except EditError as error:
            raise click.BadParameter(str(error), ctx, option) from None
        for name, texts in found.items():
            known.setdefault(name, []).extend(texts)


def _asked(kind: Kind) -> Callable[[click.Context, click.Parameter, Sequence[str]], list[Asked]]:
    def asked(ctx: click.Context, option: click.Parameter, texts: Sequence[str]) -> list[Asked]:
        texts = [*texts, *ctx.meta[_MAPS].get(option.name, ())]
        try:
            rules = kind.make(texts) if texts else []
        except EditError as error:
            raise click.BadParameter(str(error), ctx, option) from None
        return [Asked(option.opts[0], rule) for rule in rules]

    return asked


def chosen(by_name: dict[str, list[Asked]]) -> list[Asked]:
    """What was asked for, in the order in which it applies.

    :class:`click.UsageError` if two set the same field: all mean the frame as it was, so one of
    them would do nothing.
    """
    asked = [each for name in KINDS for each in by_name[name.replace("-", "_")]]
    _check_distinct(asked)
    return asked


def _check_distinct(asked: Sequence[Asked]) -> None:
    for (one, fields), (other, more) in combinations(
        [(each, touched(each.rule)) for each in asked], 2
    ):
        if field := shared(fields, more):
            said, again = _said(one), _said(other)
            raise click.UsageError(f"{said} and {again} both set {field.name}; give one of them")


def _said(asked: Asked) -> str:
    """What was asked for: of a map with many entries, the first."""
    return f"{asked.option} {shortened(asked.rule.entries[0].text)}"


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
        shift = parse_duration(said[1:] if said.startswith(("-", "+")) else said)
    except ValueError:
        raise click.BadParameter(
            f"{quoted(said)} is no time such as 1.5s or -20ms", ctx, option
        ) from None
    return [later(-shift if said.startswith("-") else shift)]
