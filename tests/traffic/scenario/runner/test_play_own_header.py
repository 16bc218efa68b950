"""Scenarios whose adapters have rules of their own: quirks, and a header that no standard has."""

from dataclasses import replace

import pytest

from rdmawire.decode import with_opcodes
from rdmawire.errors import FabricError
from rdmawire.ib.rules import Rules
from rdmawire.ib.service import Fault
from rdmawire.ib.standard_rules import STANDARD, with_work
from rdmawire.traffic.scenario import Outcome, Scenario, ScenarioError, play, read_scenario_text
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.wr import SendOpcode
from rdmawire.wire.ib import Nak
from rdmawire.wire.tables import known_headers
from tests.ib.test_rules_own_header import OPCODES, TAGGED_WORK, TagETH, Tags, rules_with

TAGGED = """\
name: A tagged message
hosts:
  client: {{memory: {{source: {{size: 100, fill: count}}}}}}
  server: {{memory: {{sink: 100}}}}
links:
  client-server:
    faults:
      - drop: {{sent by: client/a, packet: 1, nth: 1, where: {{tageth.tag: 7}}}}
connections:
  a: client, server
work:
  - receive: {{on: server/a, into: server.sink}}
  - send_imm: {{on: client/a, from: client.source, imm: 7}}
expect:
  memory: {{server.sink: client.source}}
  counters: {{client.retransmits: 1, client-server.lost: 1, client.messages: 1, client.bytes: 100}}
  packets:
    - {{where: {{tageth.tag: {tag}, tageth.scope: 0}}, count: 2}}
"""


def tagged(tag: int) -> Scenario:
    with known_headers(TagETH):
        return read_scenario_text(TAGGED.format(tag=tag))


def tagging() -> Rules:
    """Rules by which a SEND with immediate is a tagged one."""
    rules = rules_with(Tags())
    return with_work(rules, QPType.RC, SendOpcode.SEND_WITH_IMM, rules.verbs[TAGGED_WORK])


def played(scenario: Scenario) -> Outcome:
    rules = tagging()
    return play(scenario, rules={"client": rules, "server": rules}, protocols=with_opcodes(OPCODES))


def test_faults_counters_and_expectations_know_the_header() -> None:
    outcome = played(tagged(7))
    assert outcome.failures == ()
    assert outcome.hints == ()


def test_a_failure_names_the_nearest_frame() -> None:
    (failure,) = played(tagged(8)).failures
    assert failure.what == "packets with tageth.tag 8, tageth.scope 0"
    assert failure.nearest == "frame 1, tageth.tag 7"


def test_without_the_protocols_no_frame_has_the_header() -> None:
    outcome = play(tagged(7))
    assert not outcome.passed
    assert "has tageth.tag 7" in outcome.hints[0].said


def test_outside_of_the_block_the_field_is_unknown() -> None:
    with pytest.raises(ScenarioError, match=r"found 'tageth.tag'"):
        read_scenario_text(TAGGED.format(tag=7))


REFUSED = """\
name: A write that the server refuses
hosts:
  client: {memory: {source: {size: 100, access: LOCAL_WRITE}}}
  server: {memory: {sink: {size: 100, access: LOCAL_WRITE}}}
links:
  client-server:
connections:
  a: client, server
  b: server, client
work:
  - write: {on: client/a, from: client.source, to: server.sink}
  - write: {on: server/b, from: server.sink, to: client.source}
"""


def test_a_quirk_is_that_of_one_host() -> None:
    standard = STANDARD.services[QPType.RC].reactions[Fault.RKEY]
    quirk = STANDARD.with_reaction(
        QPType.RC, Fault.RKEY, replace(standard, nak=Nak.INVALID_REQUEST)
    )
    outcome = play(read_scenario_text(REFUSED), rules={"server": quirk})
    assert [step.endings for step in outcome.steps] == [
        {"REM_INV_REQ_ERR": 1},
        {"REM_ACCESS_ERR": 1},
    ]


def test_rules_of_a_host_that_does_not_exist_are_refused() -> None:
    with pytest.raises(FabricError, match="rules of 'sever': hosts are client, server"):
        play(read_scenario_text(REFUSED), rules={"sever": STANDARD})
