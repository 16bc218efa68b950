"""Switches and links."""

from functools import partial
from typing import Final

from rdmawire.fabric.egress import SCHEDULERS
from rdmawire.fabric.flow import PRIORITIES
from rdmawire.fabric.refusal import FabricError
from rdmawire.fabric.settings import Marking, Pausing
from rdmawire.screen import quoted
from rdmawire.traffic.scenario.document import Node, NodeError, Scalar
from rdmawire.traffic.scenario.form.kind import (
    Definitions,
    Json,
    Numbers,
    Word,
    fraction,
    number,
    rate,
    size,
    text_of,
    time,
)
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.record import Found, Key, Named, Record
from rdmawire.traffic.scenario.form.reference import NODE
from rdmawire.traffic.scenario.model import LinkPlan, QueuePlan, SwitchPlan
from rdmawire.traffic.scenario.schema.fault import FAULTS

MOST_BUFFER: Final = 1 << 34
_BUFFER = size(0, MOST_BUFFER)


def _together(plan: QueuePlan, found: Found, *keys: str) -> bool:
    """Whether these keys are there: all of them, or none."""
    given = [key for key in keys if key in found.nodes]
    if given and len(given) < len(keys):
        missing = next(key for key in keys if key not in given)
        raise _lacks(plan, found, given[0], missing)
    return bool(given)


def _lacks(plan: QueuePlan, found: Found, key: str, missing: str) -> NodeError:
    return NodeError(found.at(key), f"{key!r} of queue {plan.priority}", f"{missing!r} besides")


_NEEDS: Final = {"pmax": "kmin", "headroom": "xoff"}
"""Keys of a queue that say nothing without another."""


def _check_queue(plan: QueuePlan, found: Found, reading: Reading) -> QueuePlan:
    """Marks and pauses that make sense, as switches see it."""
    del reading
    for key, needed in _NEEDS.items():
        if key in found.nodes and needed not in found.nodes:
            raise _lacks(plan, found, key, needed)
    try:
        if _together(plan, found, "kmin", "kmax"):
            Marking(plan.kmin or 0, plan.kmax or 0, plan.pmax)
    except FabricError:
        raise NodeError(
            found.at("kmin"), f"kmin {plan.kmin}", f"no more than kmax, {plan.kmax}"
        ) from None
    try:
        if _together(plan, found, "xoff", "xon"):
            Pausing(plan.xoff or 0, plan.xon or 0, plan.headroom or 0)
    except FabricError:
        raise NodeError(
            found.at("xon"), f"xon {plan.xon}", f"no more than xoff, {plan.xoff}"
        ) from None
    return plan


QUEUE: Final = Record(
    called="a queue",
    plan=QueuePlan,
    finish=_check_queue,
    keys={
        "dscp": Key(kind=Numbers(0, 63), help="The DSCPs whose frames have this priority."),
        "kmin": Key(kind=_BUFFER, help="The octets from which on some frames are marked (ECN)."),
        "kmax": Key(kind=_BUFFER, help="The octets from which on all frames are marked."),
        "pmax": Key(kind=fraction(0, 1), help="The share that is marked just below kmax."),
        "xoff": Key(kind=_BUFFER, help="The octets above which who sends them is told to stop."),
        "xon": Key(kind=_BUFFER, help="The octets at which that one is told to go on."),
        "headroom": Key(
            kind=_BUFFER,
            clause="IEEE 802.1Q, annex N",
            help="The octets beyond xoff that are still taken in; if left out, enough for what is "
            "under way: three frames, a pause, and what the longest link holds there and back.",
        ),
    },
)


def _check_pauses(queue: QueuePlan, plan: SwitchPlan, found: Found) -> None:
    """Frames come to the queue, and more of them fit the buffer than pauses begin at."""
    which = f"queue {queue.priority}"
    if queue.xoff is None:
        return
    if not queue.dscp and queue.priority:
        expected = "'dscp' besides: without, no frame has its priority"
        raise NodeError(queue.mark, f"'xoff' of {which}", expected)
    if plan.buffer <= queue.xoff:
        mark = found.at("buffer") if "buffer" in found.nodes else queue.mark
        expected = f"more than xoff of {which}, {queue.xoff}, or it never pauses"
        raise NodeError(mark, f"buffer {plan.buffer}", expected)


def _check_switch(plan: SwitchPlan, found: Found, reading: Reading) -> SwitchPlan:
    """Each DSCP has one priority, and queues that are to pause can."""
    for queue in plan.queues:
        _check_pauses(queue, plan, found)
    seen: dict[int, int] = {}
    for queue in plan.queues:
        for dscp in queue.dscp:
            if seen.setdefault(dscp, queue.priority) != queue.priority:
                expected = f"a DSCP that queue {seen[dscp]} does not have"
                raise NodeError(queue.mark, f"DSCP {dscp} in queue {queue.priority}", expected)
    reading.switches[plan.name] = plan
    return plan


SWITCH: Final = Record(
    called="a switch",
    plan=SwitchPlan,
    finish=_check_switch,
    keys={
        "buffer": Key(kind=size(1, MOST_BUFFER), help="The octets that all queues share."),
        "queue": Key(kind=size(1, MOST_BUFFER), help="The octets of a queue that does not pause."),
        "scheduling": Key(kind=Word(tuple(SCHEDULERS)), help="Which queue goes first."),
        "queues": Key(
            kind=Named(
                record=QUEUE,
                key=number(0, PRIORITIES - 1, "a priority"),
                into="priority",
                called="queues by priority",
                example="3",
            ),
            help="What is special about priorities.",
        ),
    },
)
SWITCHES: Final = Named(record=SWITCH, called="switches by name", example="leaf")


class Joint:
    """The name of a link: two hosts or switches."""

    said = "two hosts or switches, such as client-leaf"
    samples = ("client-leaf", "leaf-server")

    def read(self, node: Node, reading: Reading) -> tuple[str, str]:
        names = text_of(node, self.said).split("-")
        if len(names) != 2 or names[0] == names[1]:
            raise NodeError(node.mark, quoted(text_of(node, self.said)), self.said)
        ends = reading.every(partial(NODE.read, Scalar(name, node.mark), reading) for name in names)
        return ends[0], ends[1]

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


def _keep(plan: LinkPlan, found: Found, reading: Reading) -> LinkPlan:
    """Each two are joined once, and a host is on one link."""
    if frozenset(plan.ends) in reading.links:
        raise NodeError(found.mark, f"link {quoted(plan.name)}", "one link between each two")
    for end in plan.ends:
        if end in reading.names.hosts and end in reading.linked:
            raise NodeError(found.mark, f"one more link of host {quoted(end)}", "one for each host")
    reading.links[frozenset(plan.ends)] = plan
    reading.linked.update(plan.ends)
    return plan


LONGEST_LATENCY: Final = 10**12

LINK: Final = Record(
    called="a link",
    plan=LinkPlan,
    finish=_keep,
    keys={
        "latency": Key(kind=time(0, LONGEST_LATENCY), help="How long a frame is under way."),
        "rate": Key(kind=rate(), help="How fast frames go; octets take no time if left out."),
        "mtu": Key(
            kind=number(64, 1 << 16, "octets"),
            help="Octets behind the Ethernet header; frames with more are lost.",
        ),
        "faults": Key(kind=FAULTS, help="What befalls which frames, one after the other."),
    },
)
LINKS: Final = Named(
    record=LINK, called="links by name", example="client-leaf", key=Joint(), into="ends"
)
