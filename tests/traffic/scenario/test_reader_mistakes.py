"""A corpus of mistakes: what is said of each, and where, to the letter.

``mistakes.txt`` has a case behind each line that begins with ``#``, and behind it, in lines that
begin with ``=>``, what must be told, without the name of the file. What every scenario must have
is put behind a case that does not have it.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.traffic.scenario.base import mistakes_of

STANDARD = {
    "name": "name: It\n",
    "hosts": "hosts:\n  client: {memory: {source: 8 KiB}}\n  server: {memory: {sink: 8 KiB}}\n",
    "connections": "connections: {a: [client, server]}\n",
}


NO_HOSTS = {"a misspelt hosts, and another mistake": ("hosts",)}
"""What some cases are not to have."""


class Case(NamedTuple):
    """A text, and what is told of it."""

    title: str
    text: str
    told: list[str]


def cases() -> list[Case]:
    corpus = Path(__file__).with_name("mistakes.txt").read_text()
    return [_case(part) for part in re.split(r"^# ", corpus, flags=re.MULTILINE)[1:]]


def _case(part: str) -> Case:
    title, _, body = part.partition("\n")
    lines = body.rstrip("\n").split("\n")
    told = [line.removeprefix("=> ") for line in lines if line.startswith("=>")]
    own = "".join(f"{line}\n" for line in lines if not line.startswith("=>"))
    keys = {line.partition(":")[0] for line in own.splitlines()} | {*NO_HOSTS.get(title, ())}
    rest = "".join(text for key, text in STANDARD.items() if key not in keys)
    return Case(title, own + ("" if own.startswith("[") else rest), told)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.title)
def test_errors_are_reported_with_their_place(case: Case) -> None:
    said = [str(mistake).removeprefix("it.yaml:") for mistake in mistakes_of(case.text)]
    assert said == case.told


def test_there_are_many() -> None:
    assert len(cases()) > 50
