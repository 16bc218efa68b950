"""The frame that has all fields but one as they are wanted: what is told where none has all."""

from collections.abc import Callable, Mapping

from rdmawire.fabric.field import Fields
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.simulator import Tap
from rdmawire.traffic.scenario.model import PacketExpectation
from rdmawire.traffic.scenario.playing.match import among
from rdmawire.traffic.scenario.playing.observe import is_from
from rdmawire.traffic.scenario.playing.sighting import Seen
from rdmawire.traffic.scenario.playing.wording import value_text

FEWEST_FIELDS = 2
"""With fewer, any frame has all but one."""


class NearMiss:
    """Looks for the first frame that has every field, and all but one as ``plan`` wants them."""

    def __init__(self, plan: PacketExpectation, sender: bytes | None) -> None:
        self.text = ""
        self._wanted = {name: among(value) for name, value in plan.where.items()}
        self._sender = sender

    def at(self, where: Callable[[], Seen]) -> Tap:
        """A tap of a place; ``where`` numbers its frames."""

        def look(frame: Envelope, now: int) -> None:  # noqa: ARG001 - a tap
            if not self.text and is_from(self._sender, frame.data):
                self._compare(frame.data, where())

        return look

    def _compare(self, frame: bytes, seen: Seen) -> None:
        fields = Fields(frame, seen.number)
        found = {name: fields.get(name) for name in self._wanted}
        wrong = [name for name, values in self._wanted.items() if not fields.has(name, values)]
        if len(wrong) == 1 and None not in found.values():
            self.text = _text(seen, wrong[0], found)


def _text(seen: Seen, name: str, found: Mapping[str, object]) -> str:
    place = f" of {seen.point}" if seen.point else ""
    return f"frame {seen.number}{place}, {name} {value_text(name, found[name], found)}"
