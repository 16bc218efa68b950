"""A target of which frames alone are seen: an adapter in another process, or on a wire."""

from typing import Any

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.fuzzer import EngineFuzzer
from rdmawire.fuzz.inputs import Case, ReceiveInput
from rdmawire.fuzz.oracle import judge
from rdmawire.fuzz.setup import Setup
from rdmawire.fuzz.target import ObservableTarget, Target
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.ah import AddressHandle
from tests.fuzz.planted import SHORT_WRITES


class Peer:
    """An adapter whose memory and completions cannot be seen."""

    name = "a peer"

    def __init__(self, rules: Rules = STANDARD) -> None:
        self._engine = EngineTarget(rules=rules)
        self.resets = 0

    def reset(self, setup: Setup) -> None:
        self.resets += 1
        self._engine.reset(setup)

    def numbers(self, setup: Setup) -> Numbers:
        return self._engine.numbers(setup)

    def path(self, setup: Setup) -> tuple[AddressHandle, bytes]:
        return self._engine.path(setup)

    def send(self, frame: bytes) -> list[bytes]:
        return self._engine.send(frame)


class WithoutReset:
    """An adapter without the methods of a target."""

    name = "unfinished"


class Silent(Peer):
    """A target that returns nothing instead of no frames."""

    def send(self, frame: bytes) -> Any:
        self._engine.send(frame)


class WithoutNumbers(Peer):
    """A target that returns no numbers."""

    def numbers(self, setup: Setup) -> Any:
        self._engine.numbers(setup)


class WithoutPath(Peer):
    """A target that returns no path."""

    def path(self, setup: Setup) -> Any:
        self._engine.path(setup)


def test_an_object_without_the_methods_of_a_target_is_refused() -> None:
    unfinished: Any = WithoutReset()
    needs = "unfinished: a target needs the method reset, numbers, path, send"
    with pytest.raises(FuzzError, match=needs):
        fuzzer(unfinished)


@pytest.mark.parametrize(
    ("peer", "message"),
    [
        (Silent(), "a peer: send returned NoneType, not a list of frames"),
        (WithoutNumbers(), "a peer: numbers returned NoneType, not a Numbers"),
        (WithoutPath(), "a peer: path returned NoneType, not an AddressHandle and a MAC address"),
    ],
)
def test_a_method_without_a_result_is_named(peer: Target, message: str) -> None:
    with pytest.raises(FuzzError, match=message):
        fuzzer(peer).batch(1, 0, 1)


def fuzzer(peer: Target) -> EngineFuzzer:
    return EngineFuzzer({"kind": "engine"}, peer)


def test_a_peer_is_a_target_of_which_nothing_else_is_seen() -> None:
    assert isinstance(Peer(), Target)
    assert not isinstance(Peer(), ObservableTarget)
    assert isinstance(EngineTarget(), ObservableTarget)


def test_replies_alone_of_a_healthy_peer_are_right() -> None:
    peer = Peer()
    batch = fuzzer(peer).batch(1, 0, 80)
    assert batch.found == []
    assert peer.resets == 80
    assert batch.executed > 400


def test_replies_alone_show_a_missing_check() -> None:
    fuzz = fuzzer(Peer(SHORT_WRITES))
    found = fuzz.batch(1, 0, 60).found
    assert {one.violation.what for one in found} == {"replies"}
    smallest = fuzz.minimised(found[0])
    assert "RETH.dmalen" in smallest.violation.expected
    assert len(smallest.case["inputs"]) <= 2
    shown, frames = fuzz.replay(smallest.case)
    assert shown is not None
    assert [frame.sent for frame in frames].count(False) == len(smallest.case["inputs"])


def test_no_receive_can_be_posted_on_a_peer() -> None:
    with pytest.raises(FuzzError, match="a peer takes packets alone, no input of kind receive"):
        judge(Peer(), Case(Setup(), (ReceiveInput(64),)))
