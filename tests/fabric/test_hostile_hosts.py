"""What callers of hosts and pairs get wrong is a ``VerbsError`` or a ``MemoryFault``, and no other.

:mod:`tests.ib.test_hostile_arguments` does the same for the verbs themselves.
"""

from collections.abc import Callable
from errno import EINVAL
from typing import Any

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host, Place
from rdmawire.fabric.pair import ATTRIBUTES, End, Pair


def _given(value: Any) -> Any:
    """Something, where nothing would be no mistake."""
    return 0 if value is None else value


CALLS: dict[str, Callable[[End, Any], object]] = {
    "read length": lambda end, x: end.region.read([x]),  # type: ignore[arg-type]
    "read offset": lambda end, x: end.region.read(1, x),
    "write": lambda end, x: end.region.write(x),
    "write offset": lambda end, x: end.region.write(b"x", x),
    "send": lambda end, x: end.send(x),
    "write verb": lambda end, x: end.write(x, to=end.peer.region),
    "write to": lambda end, x: end.write(b"x", to=x),
    "write at": lambda end, x: end.write(b"x", to=end.peer.region, offset=x),
    "read": lambda end, x: end.read(x, of=end.peer.region),
    "read of": lambda end, x: end.read(1, of=x),
    "atomic_write": lambda end, x: end.atomic_write(x, to=end.peer.region),
    "receive": lambda end, x: end.receive(x),
    "post": lambda end, x: end.post(x),
    "host": lambda _, x: Host(x),
    "filled": lambda end, x: end.filled(x),
    "path_to": lambda end, x: end.path_to(x),
    "bring_up": lambda end, x: end.bring_up(end.qp, x),
    "bring_up qp": lambda end, x: end.bring_up(x, ATTRIBUTES),
    "place": lambda _, x: Place.of(x, "10.0.0.1"),
    "place address": lambda _, x: Place.of("02:00:00:00:00:01", x),
    "place number": lambda _, x: Place.numbered(x),
    "kind": lambda _, x: Pair(kind=x),
    "attributes": lambda _, x: Pair(attributes=x),
    "places": lambda _, x: Pair(places=x),
    "profile": lambda _, x: Pair(profile=x),
    "peer's profile": lambda _, x: Pair(peer_profile=_given(x)),
    "link": lambda _, x: Pair(_given(x)),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_wrong_argument_is_refused(call: str) -> None:
    end = Pair().client
    for value in (None, "text", 1.5, float("nan"), float("inf"), [1, 2, 3], {1: 2}, object(), int):
        with pytest.raises(VerbsError) as caught:
            CALLS[call](end, value)
        assert caught.value.errno == EINVAL
        assert len(str(caught.value)) < 400
    assert not end.nic.transmit(0)


@pytest.mark.parametrize("place", [-1, "x", ("a", "b"), object()])
def test_a_place_is_a_place(place: Any) -> None:
    with pytest.raises(VerbsError, match="place is"):
        Host(place=place)
