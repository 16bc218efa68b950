"""What `rdmawire run` prints of scenarios without playing them."""

import json
import sys
from itertools import groupby
from operator import attrgetter

import click

from rdmawire.capture.source import STANDARD_INPUT, STREAM
from rdmawire.screen import quoted


def print_list() -> int:
    """The scenarios that come with rdmawire."""
    from rdmawire.traffic.scenario.shipped import read_shipped, shipped

    names = list(shipped())
    width = max(map(len, names))
    for name in names:
        click.echo(f"{name:<{width}}  {read_shipped(name).name}")
    return 0


def print_schema() -> int:
    """The JSON Schema of scenarios."""
    from rdmawire.traffic.scenario.json_schema import json_schema

    click.echo(json.dumps(json_schema(), indent=1))
    return 0


def print_keys(word: str) -> int:
    """Keys, counters and words with this in their name, or in that of what they are of."""
    from rdmawire.nearest import nearest
    from rdmawire.traffic.scenario.listing import listed_rows

    every = list(listed_rows())
    rows = [row for row in every if row.has(word)]
    if not rows:
        near = next(iter(nearest(word, [row.name for row in every])), "")
        meant = f"; did you mean {near!r}?" if near else ""
        raise click.UsageError(f"nothing of scenarios has {quoted(word)} in its name{meant}")
    width = max(len(row.name) for row in rows)
    for of, group in groupby(rows, key=attrgetter("of")):
        click.echo(of)
        for row in group:
            click.echo(f"  {row.name:<{width}}  {row.line}".rstrip())
    return 0


def text_of_word(word: str, *, shipped: bool) -> str:
    """What stands in a scenario; ``ScenarioError`` where that is no text, or too long."""
    from rdmawire.traffic.scenario.reader import read_octets, text_of_octets
    from rdmawire.traffic.scenario.shipped import text_of

    if shipped:
        return text_of(word)
    if word == STREAM:
        return text_of_octets(octets_of_input(), STANDARD_INPUT)
    return text_of_octets(read_octets(word), word)


def octets_of_input() -> bytes:
    """What standard input has, one octet more than a scenario may have at the most."""
    from rdmawire.traffic.scenario.document import MAX_BYTES

    return sys.stdin.buffer.read(MAX_BYTES + 1)
