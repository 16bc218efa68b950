"""Files that use earlier names of keys and counters read the same."""

import re

import pytest

from rdmawire.traffic.scenario.document import ScenarioError
from rdmawire.traffic.scenario.reader import read_scenario_text, shipped, text_of

CURRENT = [name for name in shipped() if re.search(r"\bbyte: |_bytes: |\.bytes: ", text_of(name))]


def former(text: str) -> str:
    """The text with the names of today replaced by the earlier ones."""
    return re.sub(r"(?<=[._])bytes(?=: )", "octets", text).replace("byte: ", "octet: ")


def test_scenarios_with_renamed_keys_exist() -> None:
    assert {"bit-error", "gpu-bounce"} <= set(CURRENT)


@pytest.mark.parametrize("name", CURRENT)
def test_a_file_with_earlier_names_reads_the_same(name: str) -> None:
    text = text_of(name)
    assert former(text) != text
    one, other = (read_scenario_text(words, name) for words in (text, former(text)))
    assert re.sub(r"Mark\([^)]*\)", "", repr(one)) == re.sub(r"Mark\([^)]*\)", "", repr(other))


def test_a_key_by_both_its_names_is_a_mistake() -> None:
    text = text_of("bit-error").replace("byte: 40", "byte: 40, octet: 41")
    with pytest.raises(ScenarioError, match="'octet' besides 'byte'"):
        read_scenario_text(text)
