"""Scenarios that come with the package, by name: ``lost-first`` is ``lost-first.yaml``."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from rdmawire.traffic.scenario.form.mistake import Mistake, ScenarioError, listed, meant_by
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.reader import read_scenario

SUFFIX: Final = ".yaml"


def shipped() -> dict[str, Path]:
    """The file of each, by name, in the order of the alphabet."""
    folder = Path(str(files("rdmawire.traffic") / "scenarios"))
    return {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def located(word: str) -> Path:
    """The file that a word means: its path, or the name of one that is shipped.

    :class:`ScenarioError` where it is neither.
    """
    path, known = Path(word), shipped()
    if path.is_file() or path.suffix or path.parent != Path():
        return path
    if word not in known:
        expected = f"the path of a file, or the name of a scenario that is shipped: {listed(known)}"
        raise ScenarioError(
            [Mistake(word, None, "nothing of this name", expected, meant_by(word, known))]
        )
    return known[word]


def read_named(word: str) -> Scenario:
    """The scenario of a file, or one that is shipped; what it is called is the word."""
    return read_scenario(located(word))
