"""Memory within other memory: regions beside each other, and bytes that must not change."""

import pytest

from rdmawire.traffic.scenario.document import ScenarioError
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import play

TEXT = """
name: Parts
hosts:
  client: {{memory: {{source: {{size: 64, fill: count}}}}}}
  server:
    windows: [slot]
    memory:
      whole: {{size: 256, fill: random, registered: false}}
      first: {{size: 64, within: whole, offset: 64}}
      second: {{size: 64, within: whole, offset: 128}}
connections: {{a: [client, server]}}
work:
  - write: {{on: client/a, from: client.source, to: "server.{to}", status: {status}}}
expect:
  memory:
    {same}
    "server.whole[0:64]": unchanged
    "server.whole[128:256]": unchanged
"""


def failures(to: str, status: str, same: str) -> list[str]:
    scenario = read_scenario_text(TEXT.format(to=to, status=status, same=same), "t.yaml")
    return [failure.text("t.yaml") for failure in play(scenario).failures]


def test_a_part_is_the_same_bytes_as_the_whole() -> None:
    assert failures("first", "SUCCESS", '"server.whole[64:128]": client.source') == []


def test_a_part_has_a_region_of_its_own() -> None:
    same = '"server.whole[64:128]": unchanged'
    assert failures("first[32:96]", "REM_ACCESS_ERR", same) == []
    assert failures("whole[64:128]", "REM_ACCESS_ERR", same) == []


def test_what_must_not_change_is_shown_if_it_does() -> None:
    (failure,) = failures("second", "SUCCESS", "server.first: unchanged")
    assert failure.startswith("t.yaml:18:5: memory server.whole[128:256]: expected")
    assert failure.endswith("found 00 01 02 03 04 05 06 07.. at byte 128 (frame 1)")


def test_memory_that_is_not_there_has_nothing_to_compare() -> None:
    text = TEXT.format(to="first", status="SUCCESS", same='"server.big[0:8]": unchanged')
    big = "gpus: {g: T4}\n    memory:\n      big: {size: 20 GiB, gpu: g, refused: ENOMEM}"
    scenario = read_scenario_text(text.replace("memory:\n      whole", f"{big}\n      whole"))
    missing, compared = (failure.text("t.yaml") for failure in play(scenario).failures)
    assert "memory server.big: expected to be there, found ENOMEM" in missing
    assert "expected unchanged, found no memory" in compared


@pytest.mark.parametrize("size", ["257 MiB", "1 GiB"])
def test_what_is_compared_has_a_limit(size: str) -> None:
    text = TEXT.format(to="first", status="SUCCESS", same="server.big: unchanged")
    text = text.replace("windows: [slot]\n    memory:", f"memory:\n      big: {size}")
    with pytest.raises(ScenarioError, match="268435456 to compare, at most"):
        read_scenario_text(text)
