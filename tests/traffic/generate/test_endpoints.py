"""What adapters must do for traffic, and what is said where they did not."""

import pytest

from rdmawire.traffic.generate.endpoints import Unfinished
from rdmawire.traffic.generate.link import Pattern
from rdmawire.traffic.generate.recording import FrameRecorder
from rdmawire.traffic.generate.rounds import TestNetwork
from rdmawire.traffic.generate.spec import TrafficSpec, Verb
from rdmawire.verbs.enums import QPState
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask


def test_work_that_ends_with_an_error_is_no_traffic() -> None:
    conversation = TestNetwork(TrafficSpec(verb=Verb.WRITE, count=3))
    lane = conversation.ends.lanes[0]
    wanted = QPAttributes(qp_state=QPState.ERR)
    conversation.ends.clients[0].nic.modify_qp(lane.asks, wanted, QPAttrMask.STATE)
    with pytest.raises(Unfinished, match="WR_FLUSH_ERR"):
        conversation.play(3, Pattern(()), FrameRecorder(conversation.simulator.now, None))


def test_nor_are_messages_that_nobody_goes_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = TestNetwork(TrafficSpec(verb=Verb.WRITE, count=3))
    monkeypatch.setattr(conversation.ends, "post", lambda *_: None)
    with pytest.raises(Unfinished, match="3 messages are not done"):
        conversation.play(3, Pattern(()), FrameRecorder(conversation.simulator.now, None))
