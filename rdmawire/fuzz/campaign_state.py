"""The state of a campaign in its folder: what is fuzzed, and what is done."""

import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.finding import exists, path_text, read_json
from rdmawire.fuzz.fuzzer import Spec
from rdmawire.terminal import shorten

STATE: Final = "campaign.json"
"""The name of the file in the folder of a campaign."""
_MAX_COUNT: Final = 1 << 64
"""The largest number of runs, packets and the like in a state."""
_MAX_SECONDS: Final = 1e12
"""Seconds of a campaign, at most: NaN and infinity are none."""
_MAX_VALUE: Final = 60
"""Characters of an option's value in a message."""
_MAX_OPTIONS: Final = 300
"""Characters of all options in a message."""


class CampaignState(NamedTuple):
    """What a campaign has done.

    - ``target``: what is fuzzed (:func:`rdmawire.fuzz.fuzzer.make_fuzzer`); ``seed``: its seed.
    - ``runs``: cases played; ``executed``: their packets; ``seconds``: how long it took.
    - ``next``: the first run that is not done.
    """

    target: dict[str, Any]
    seed: int
    runs: int
    executed: int
    seconds: float
    next: int

    @property
    def options(self) -> dict[str, Any]:
        """Return what another campaign must have, too, to go on with this one."""
        return {**self.target, "seed": self.seed}


def read_state(folder: Path) -> CampaignState | None:
    """Read the state of a campaign; ``None`` if none was begun in the folder.

    Raises :class:`FuzzError` for a file that is not a state, or cannot be read.
    """
    path = folder / STATE
    if not exists(path):
        return None
    values = read_json(path)
    if not isinstance(values, dict) or not isinstance(values.get("target"), dict):
        raise FuzzError(f"{path_text(path)}: not the state of a campaign: use another folder")
    for name in ("runs", "executed", "next", "seed"):
        if type(values.get(name)) is not int or not 0 <= values[name] <= _MAX_COUNT:
            reason = "is missing or not an integer from 0 to 2**64"
            raise FuzzError(f"{path_text(path)}: {name} {reason}: use another folder")
    if type(values.get("seconds")) not in (int, float) or not 0 <= values["seconds"] < _MAX_SECONDS:
        reason = "seconds are missing or not a number"
        raise FuzzError(f"{path_text(path)}: {reason}: use another folder")
    return CampaignState(**{name: values[name] for name in CampaignState._fields})


def seed_of(folder: Path) -> int | None:
    """Return the seed of the campaign that was begun in a folder, or ``None``."""
    state = read_state(folder)
    return None if state is None else state.seed


def write_state(folder: Path, state: CampaignState) -> None:
    """Write the state of a campaign. Raises :class:`FuzzError` if it cannot be written."""
    beside = folder / f".{STATE}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(state._asdict(), indent=1) + "\n")
        beside.replace(folder / STATE)
    except OSError as error:
        reason = error.strerror or error
        raise FuzzError(f"{path_text(folder)}: cannot write: {reason}") from error


def check_same(folder: Path, state: CampaignState, spec: Spec, seed: int) -> None:
    """Raise :class:`FuzzError` if a state is that of another campaign."""
    theirs = state.options
    if other := _differing({**spec, "seed": seed}, theirs):
        raise FuzzError(
            f"{path_text(folder / STATE)}: another campaign: {other}: use another folder, or the "
            f"options of that campaign: {_words(theirs)}"
        )


def _differing(ours: Spec, theirs: Spec) -> str:
    """Write which options of two campaigns differ; ``""`` for none."""
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    every = ", ".join(
        f"{'target' if name == 'kind' else shorten(name, _MAX_VALUE)} {_value(theirs, name)} there "
        f"and {_value(ours, name)} here"
        for name in names
    )
    return shorten(every, _MAX_OPTIONS)


def _value(spec: Spec, name: str) -> str:
    return shorten(str(spec.get(name, "not given")), _MAX_VALUE)


def _words(target: Spec) -> str:
    """Write what a campaign fuzzes."""
    more = (
        f"{shorten(name, _MAX_VALUE)} {_value(target, name)}" for name in target if name != "kind"
    )
    return shorten(", ".join([f"target {_value(target, 'kind')}", *more]), _MAX_OPTIONS)
