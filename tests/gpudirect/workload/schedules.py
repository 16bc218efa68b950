"""Random schedules, and GOAL files of them: text, and binary by the layout of txt2bin."""

from collections.abc import Callable
from io import BytesIO
from struct import pack

from hypothesis import strategies as st

from rdmawire.gpudirect.workload import ANY, Kind, Operation, Workload, WorkloadError, parse_goal

TAGS = st.integers(0, 2)


def text_of(ranks: list[list[Operation]]) -> str:
    """The GOAL schedule of these operations, each with the label l and its number."""
    lines = [f"num_ranks {len(ranks)}"]
    for rank, operations in enumerate(ranks):
        lines.append(f"rank {rank} {{")
        for index, one in enumerate(operations):
            lines.append(f"  l{index}: {_statement(one)} cpu {one.stream}")
            if one.kind is not Kind.COMPUTE and one.nic:
                lines[-1] += f" nic {one.nic}"
        for index, one in enumerate(operations):
            lines += [f"  l{index} requires l{before}" for before in one.after]
            lines += [f"  l{index} irequires l{before}" for before in one.after_start]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _statement(one: Operation) -> str:
    if one.kind is Kind.COMPUTE:
        return f"calc {one.size}"
    word = "to" if one.kind is Kind.SEND else "from"
    return f"{one.kind.value} {one.size}b {word} {one.peer} tag {one.tag}"


def binary_of(ranks: list[list[Operation]]) -> bytes:
    """The same in the binary form."""
    types = {Kind.SEND: 1, Kind.RECEIVE: 2, Kind.COMPUTE: 3}
    at, table, parts = 6 + 16 * len(ranks), b"", b""
    for operations in ranks:
        roots = [i for i, one in enumerate(operations) if not one.after and not one.after_start]
        records, waiting = b"", b""
        for index, one in enumerate(operations):
            ends = [i for i, other in enumerate(operations) for b in other.after if b == index]
            starts = [
                i for i, other in enumerate(operations) for b in other.after_start if b == index
            ]
            first = len(waiting) // 4
            records += pack(
                "<IBIQIBBIIII",
                len(one.after) + len(one.after_start), types[one.kind], one.peer % (1 << 32),
                one.size, one.tag % (1 << 32), one.stream, one.nic, len(ends), first,
                len(starts), first + len(ends),
            )  # fmt: skip
            waiting += b"".join(pack("<I", number) for number in (*ends, *starts))
        part = pack("<II", len(operations), len(roots))
        part += b"".join(pack("<I", number) for number in roots) + records + waiting
        table += pack("<QQ", at, at + len(part))
        parts += part
        at += len(part)
    return pack("<QIBB", 4223, len(ranks), 3, 3) + table + parts


def content(workload: Workload) -> list[list[tuple[object, ...]]]:
    """What the operations of each rank are, without labels and lines."""
    return [
        [
            (
                *(one.kind, one.size, one.peer, one.tag, one.stream, one.nic),
                *(sorted(one.after), sorted(one.after_start)),
            )
            for one in operations
        ]
        for operations in workload.ranks
    ]


def goal(text: str) -> Workload:
    """The workload of a text, which is called x.goal."""
    return parse_goal(BytesIO(text.encode()), "x.goal")


def failure(run: Callable[[], object]) -> str:
    """The line that a run fails with; empty if it does not."""
    try:
        run()
    except WorkloadError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        return text
    return ""


@st.composite
def schedules(
    draw: st.DrawFn, *, unique: bool = False, circles: bool = False, sizes: int = 200
) -> list[list[Operation]]:
    """Operations of ranks with both ends of each message, and dependencies.

    With ``unique`` each message has a tag of its own. With ``circles`` dependencies may go in any
    direction; without, they follow an order in which all ranks could do all one after the other.
    """
    count = draw(st.integers(1, 4))
    steps = draw(st.lists(st.tuples(*[st.integers(0, count - 1)] * 2, TAGS), max_size=12))
    ranks: list[list[Operation]] = [[] for _ in range(count)]
    for number, (source, target, drawn) in enumerate(steps):
        size = draw(st.integers(0, sizes))
        if source == target:
            ranks[source].append(Operation(Kind.COMPUTE, size, stream=drawn))
            continue
        tag = number if unique else drawn
        nic = draw(st.integers(0, 1))
        ranks[source].append(Operation(Kind.SEND, size, target, tag, nic=nic))
        ranks[target].append(Operation(Kind.RECEIVE, sizes, source, tag))
    for operations in ranks:
        for index, one in enumerate(operations):
            others = range(len(operations)) if circles else range(index)
            for before in draw(st.lists(st.sampled_from(others), max_size=2)) if others else ():
                if before != index or circles:
                    one.require(before, start=draw(st.booleans()))
    return ranks


def any_source(ranks: list[list[Operation]]) -> list[list[Operation]]:
    """The same ranks, whose receives take messages of any source and tag."""
    for operations in ranks:
        for one in operations:
            if one.kind is Kind.RECEIVE:
                one.peer = one.tag = ANY
    return ranks
