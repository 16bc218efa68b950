"""Lists and ranges of values on the command line: ``2,4,8`` and ``8..256M``."""

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from rdmawire.cli import options
from rdmawire.terminal import quote

T = TypeVar("T")


def values_of(parse: Callable[[str], T]) -> Callable[..., list[T] | None]:
    """Return the callback of an option with values between commas; each counts once."""
    return options.reads(lambda text: list(dict.fromkeys(map(parse, text.split(",")))), ValueError)


def numbers_of(parse: Callable[[str], int]) -> Callable[..., list[int] | None]:
    """Return the callback of an option with numbers and ranges between commas."""

    def read(text: str) -> list[int]:
        parts = (_numbers(part, parse) for part in text.split(","))
        return list(dict.fromkeys(number for part in parts for number in part))

    return options.reads(read, ValueError)


def _numbers(text: str, parse: Callable[[str], int]) -> Iterator[int]:
    """Yield the number of a text, or those of a range: each is twice the one before."""
    first, dots, last = text.partition("..")
    low = parse(first)
    high = parse(last) if dots else low
    if dots and not 0 < low <= high:
        raise ValueError(f"{quote(text)}: a range goes from 1 or more to a larger number")
    yield low
    while dots and (low := 2 * low) <= high:
        yield low


def integer(least: int, most: int) -> Callable[[str], int]:
    """Return a function that reads an integer, or raises ``ValueError``."""

    def parse(text: str) -> int:
        word = text.strip()
        if word.isascii() and word.isdigit() and len(word) < 20 and least <= int(word) <= most:
            return int(word)
        raise ValueError(f"{quote(text)} is no number from {least} to {most}")

    return parse


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """Return a function that reads one of some names, or raises ``ValueError``."""

    def parse(text: str) -> str:
        word = text.strip()
        if word not in names:
            raise ValueError(f"{quote(word)} is not one of {', '.join(names)}")
        return word

    return parse


def quantity(parse: Callable[[str], T], error: type[Exception]) -> Callable[[str], T]:
    """Return a function that calls ``parse``, and raises ``ValueError`` for its error."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except error as reason:
            raise ValueError(str(reason)) from None

    return read
