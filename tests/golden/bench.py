"""Golden captures read as a test bench reads them: the JSON beside a capture, and its frames."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rdmawire.capture import Record, open_capture
from rdmawire.fabric.host import Place
from rdmawire.memory.key import Access
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.qp_attr import QPAttributes
from rdmawire.verbs.wr import SendOpcode
from rdmawire.wire.management import MTU
from tools.make_captures.golden import case as form
from tools.make_captures.golden.case import (
    CLIENT,
    OTHER,
    SERVER,
    Action,
    Case,
    End,
    Memory,
    Raw,
    Work,
)
from tools.make_captures.golden.played import ATTRIBUTES

GOLDEN = Path(__file__).parents[2] / "captures" / "golden"

Object = dict[str, Any]


class RecordedCase(NamedTuple):
    """A case as the JSON describes it, with its frames: when each was sent (ns), from whom."""

    capture: str
    described: Object
    times: tuple[int, ...]
    frames: tuple[bytes, ...]

    @property
    def name(self) -> str:
        return str(self.described["name"])

    @property
    def scripted(self) -> set[int]:
        return set(self.described.get("scripted", ()))

    def by(self, who: str) -> list[tuple[int, bytes]]:
        """Return the frames that one end sent, and the time of each (ns)."""
        mac = bytes.fromhex(self.described[who]["mac"].replace(":", ""))
        pairs = zip(self.times, self.frames, strict=True)
        return [(time, frame) for time, frame in pairs if frame[6:12] == mac]

    def scripted_frames(self, who: str) -> tuple[Raw, ...]:
        """Return the frames that a script sent in the name of one end."""
        mac = bytes.fromhex(self.described[who]["mac"].replace(":", ""))
        return tuple(
            Raw(time, who, frame)
            for number, (time, frame) in enumerate(zip(self.times, self.frames, strict=True), 1)
            if number in self.scripted and frame[6:12] == mac
        )


def captures() -> list[str]:
    """The names of all golden captures, without their suffix."""
    return sorted(path.stem for path in GOLDEN.glob("*.json"))


@cache
def read(name: str) -> tuple[RecordedCase, ...]:
    """The cases of a capture."""
    described = json.loads((GOLDEN / f"{name}.json").read_text())
    with open_capture(GOLDEN / described["capture"]) as reader:
        records = list(reader)
    return tuple(_cases(described, records))


def _cases(described: Object, records: list[Record]) -> Iterator[RecordedCase]:
    for case in described["cases"]:
        first, last = case["frames"]
        mine = records[first - 1 : last]
        start = described["epoch_ns"] + case["start_ns"]
        for who, usual in described.get("usual", {}).items():
            case[who] = usual | case[who]
        times = tuple(record.time_ns - start for record in mine)
        yield RecordedCase(described["capture"], case, times, tuple(record.data for record in mine))


def played() -> list[str]:
    """The captures whose cases describe each end and its work."""
    return [name for name in captures() if all(CLIENT in one.described for one in read(name))]


def case_of(recorded: RecordedCase, real: str) -> Case:
    """The case in which one end is real; the other is known, but plays no part."""
    details = recorded.described
    ends = {who: _end(details[who], details[OTHER[who]]) for who in (CLIENT, SERVER)}
    return Case(
        recorded.name,
        details["shows"],
        ends,
        tuple(map(_action, details["does"])),
        recorded.scripted_frames(real),
        _kind(details["service"]),
        tuple(details.get("lost", ())),
        {int(number): wait for number, wait in details.get("late", {}).items()},
        details.get("bits_per_second"),
    )


def _kind(service: str) -> QPType:
    return QPType.XRC_INI if service == "XRC" else QPType[service]


def _end(described: Object, peer: Object) -> End:
    attributes = QPAttributes(
        path_mtu=MTU.of(described["path_mtu"]),
        qp_access_flags=_rights(described["qp_access_flags"]),
        qkey=described.get("qkey", 0),
        dest_qp_num=peer["qpn"],
        **{name: described[name] for name in ATTRIBUTES},
    )
    return End(
        described["qpn"],
        Place.of(described["mac"], described["address"]),
        _memory(described, "memory"),
        _memory(described, "fast") if "fast_va" in described else Memory(0, 0x0100),
        attributes,
        described["traffic_class"],
        described["flow_label"],
        *(described.get(flag, False) for flag in ("shared", "silent", "notifies")),
    )


def _memory(described: Object, name: str) -> Memory:
    va, rkey = described[f"{name}_va"], described[f"{name}_rkey"]
    return Memory(va, rkey, _rights(described[f"{name}_access"]), described[f"{name}_bytes"])


def _rights(names: list[str]) -> int:
    return sum(Access[name].value for name in names)


_ACTIONS: Mapping[str, Any] = {
    "RECEIVE": form.Receive,
    "REGISTER": form.Register,
    "LOSE": form.Lose,
    "REARM": form.Rearm,
    "MIGRATE": form.Migrate,
}


def _action(described: Object) -> Action:
    fields = {name: value for name, value in described.items() if name != "do"}
    if described["do"] in _ACTIONS:
        action: Action = _ACTIONS[described["do"]](**fields)
        return action
    return Work(do=SendOpcode[described["do"]], **fields)


class Playback:
    """A port that sends what an end was captured sending, at those times; its input is ignored."""

    def __init__(self, frames: list[tuple[int, bytes]]) -> None:
        self.frames = frames[::-1]

    def receive(self, frame: bytes, now: int) -> None:
        """Nothing follows from it."""

    def transmit(self, now: int) -> list[bytes]:
        due = []
        while self.frames and self.frames[-1][0] <= now:
            due.append(self.frames.pop()[1])
        return due

    def next_timer(self) -> int | None:
        return self.frames[-1][0] if self.frames else None

    def handle_timer(self, now: int) -> None:
        """What is due is sent when next asked."""
