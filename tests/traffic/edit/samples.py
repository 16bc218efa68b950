"""Captures edited in memory, and edits that can be taken back."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rdmawire.capture import Record, open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.traffic.edit import ChecksumMode, Editor, text
from rdmawire.traffic.edit.rules import EditRule
from tests.captures import CAPTURES

LINUX = CAPTURES / "linux"


class Way(NamedTuple):
    """An edit, and the one that takes it back."""

    there: Callable[[], list[EditRule]]
    back: Callable[[], list[EditRule]]


def _rules(
    macs: Sequence[str], ips: Sequence[str], qpns: Sequence[str], keys: Sequence[str], sign: str
) -> list[EditRule]:
    return [
        text.macs(macs),
        text.ips(ips),
        text.qpns(qpns),
        text.rkeys(keys),
        text.psn_offsets([f"{sign}0x7ffff1"]),
        text.va_offsets([f"{sign}0x7fffffffffffff01"]),
    ]


_SWAPS = ("00:00:5e:00:53:01=00:00:5e:00:53:02", "00:00:5e:00:53:02=00:00:5e:00:53:01")

EVERYTHING = Way(
    lambda: _rules(
        [*_SWAPS, "52:54:00:00:00:01=02:00:00:00:00:99"],
        ["10.77.0.0/24=192.168.7.0/24", "192.0.2.1=198.51.100.7", "fd77::/64=fd00:1::/64",
         "2001:db8::1=2001:db8:1::9", "fe80::/64=fe90::/64"],
        ["17=0x1234", "0x3a=0x203a", "0xd107=7"], ["0x1201=5", "0x11223344=0x44332211"], "+",
    ),
    lambda: _rules(
        [*_SWAPS, "02:00:00:00:00:99=52:54:00:00:00:01"],
        ["192.168.7.0/24=10.77.0.0/24", "198.51.100.7=192.0.2.1", "fd00:1::/64=fd77::/64",
         "2001:db8:1::9=2001:db8::1", "fe90::/64=fe80::/64"],
        ["0x1234=17", "0x203a=0x3a", "7=0xd107"], ["5=0x1201", "0x44332211=0x11223344"], "-",
    ),
)  # fmt: skip
"""Addresses, queue pairs, PSNs and keys of all shipped captures, and back."""


def records(path: Path) -> list[Record]:
    """The records of a capture."""
    with open_capture(path) as reader:
        return list(reader)


def edited(
    content: Sequence[Record],
    rules: Sequence[EditRule],
    checksum_mode: ChecksumMode = ChecksumMode.CHANGED,
) -> list[Record]:
    """What becomes of records, each by itself."""
    editor = Editor(rules, checksum_mode=checksum_mode)
    return [one._replace(data=editor.edit(one.data, one.link_type)) for one in content]


def dissected(content: Sequence[Record]) -> Iterator[Dissection]:
    """Yield the dissection of each record."""
    dissector = Dissector()
    for one in content:
        yield dissector.dissect(
            one.data, link_type=one.link_type, time_ns=one.time_ns, length=one.length
        )


def checks(content: Sequence[Record]) -> list[list[tuple[str, bool]]]:
    """The checksums of each record, and whether they are good."""
    return [[(check.name, check.good) for check in one.checks] for one in dissected(content)]
