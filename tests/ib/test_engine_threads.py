"""One thread at a time: a second one is refused in words, and the first goes on undisturbed."""

from collections.abc import Callable
from copy import deepcopy
from errno import EBUSY
from threading import Thread

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import Pair
from rdmawire.ib.congestion.dcqcn import Dcqcn
from rdmawire.ib.engine import Nic
from rdmawire.verbs.engine import in_use
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR

Call = Callable[[Pair], object]

CALLS: dict[str, Call] = {
    "receive": lambda pair: pair.client.nic.receive(b"frame", 0),
    "receive_all": lambda pair: pair.client.nic.receive_all([], 0),
    "transmit": lambda pair: pair.client.nic.transmit(0),
    "handle_timer": lambda pair: pair.client.nic.handle_timer(0),
    "next_timer": lambda pair: pair.client.nic.next_timer(),
    "next_event": lambda pair: pair.client.nic.next_event(),
    "post_send": lambda pair: pair.client.nic.post_send(pair.client.qp, [SendWR(SendOpcode.SEND)]),
    "post_recv": lambda pair: pair.client.nic.post_recv(pair.client.qp, [RecvWR()]),
    "create_cq": lambda pair: pair.client.nic.create_cq(1),
    "query_qp": lambda pair: pair.client.nic.query_qp(pair.client.qp),
    "up": lambda pair: setattr(pair.client.nic, "up", True),
}


class Watched(Dcqcn):
    """A scheme that does something while its adapter sends."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act = act

    def next_timer(self) -> int | None:
        self.act()
        return super().next_timer()


def elsewhere(call: Callable[[], object]) -> list[Exception]:
    """What another thread meets that makes this call, to its end."""
    met: list[Exception] = []

    def run() -> None:
        try:
            call()
        except VerbsError as error:
            met.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return met


def while_sending(pair: Pair, act: Callable[[], object]) -> list[bytes]:
    """The frames of one call to ``transmit``, in which something is done."""
    qp = pair.client.qp
    pair.client.nic.control_congestion(qp, Watched(lambda: None))
    pair.client.write(b"hello", to=pair.server.region)
    assert qp.governor is not None
    qp.governor.scheme.act = act  # type: ignore[attr-defined]
    return pair.client.nic.transmit(0)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_second_thread_is_refused_while_one_is_inside(call: Call) -> None:
    pair = Pair()
    met: list[Exception] = []
    frames = while_sending(pair, lambda: met.extend(elsewhere(lambda: call(pair))))
    assert len(frames) == 1
    assert met
    for error in met:
        assert isinstance(error, VerbsError)
        assert error.errno == EBUSY
        assert "another thread" in str(error)
    assert elsewhere(lambda: call(pair)) == []
    call(pair)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_thread_that_is_inside_may_call_again(call: Call) -> None:
    pair = Pair()
    called: list[object] = []

    def act() -> None:
        if not called:
            called.append(pair)
            call(pair)

    while_sending(pair, act)
    assert called
    assert elsewhere(pair.client.nic.next_timer) == []


def test_another_adapter_may_be_used_meanwhile() -> None:
    pair = Pair()
    met: list[Exception] = []
    while_sending(pair, lambda: met.extend(elsewhere(lambda: pair.server.nic.transmit(0))))
    assert met == []


def test_who_left_by_an_error_is_out() -> None:
    pair = Pair()
    nic = pair.client.nic
    for call in (
        lambda: nic.post_send(pair.client.qp, [None]),  # type: ignore[list-item]
        lambda: nic.receive_all([None], 0),  # type: ignore[list-item]
        lambda: nic.create_cq(-1),
    ):
        with pytest.raises(VerbsError):
            call()
        assert elsewhere(lambda: nic.transmit(0)) == []


def test_a_copy_that_is_made_inside_belongs_to_no_thread() -> None:
    pair = Pair()
    copies: list[Nic] = []
    while_sending(pair, lambda: copies.append(deepcopy(pair.client.nic)))
    assert elsewhere(lambda: copies[0].transmit(0)) == []


def test_the_error_has_the_remedy() -> None:
    assert str(in_use(Pair().client.nic)) == (
        "another thread is inside this Nic: let one in at a time [EBUSY]"
    )
