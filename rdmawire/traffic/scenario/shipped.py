"""Scenarios that come with the package, by name: ``lost-first`` is ``lost-first.yaml``."""

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.reader import read_scenario_text

FOLDER: Final = "scenarios"
SUFFIX: Final = ".yaml"


def shipped() -> Mapping[str, Traversable]:
    """The file of each, by name, in the order of the alphabet."""
    folder = files("rdmawire.traffic") / FOLDER
    found = {
        file.name.removesuffix(SUFFIX): file
        for file in folder.iterdir()
        if file.name.endswith(SUFFIX)
    }
    return dict(sorted(found.items()))


def text_of(name: str) -> str:
    """What stands in one of them; ``KeyError`` for other names."""
    return shipped()[name].read_text(encoding="utf-8")


def read_shipped(name: str) -> Scenario:
    """One of them; messages call it by its name."""
    return read_scenario_text(text_of(name), name)
