"""Chakra's traces: JSON and protocol buffers, collectives of groups, and what is wrong in them."""

import gzip
import json
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.gpudirect.workload import (
    Collective,
    Kind,
    Operation,
    Workload,
    WorkloadError,
    WorkloadRun,
    WorkloadSpec,
    parse_chakra,
    parse_groups,
    read_trace,
)
from tests.gpudirect.workload.schedules import content

FOLDER = Path(__file__).parents[3] / "examples" / "workloads"
TRAINING = [FOLDER / f"training.{rank}.json" for rank in range(2)]
Node = dict[str, Any]
TYPES = ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV")
NUMBERS = {f"{name}_NODE": number for number, name in enumerate((*TYPES, "COMM_COLL"))}


def node(number: int, kind: str, *after: int, time: int = 0, **attributes: Any) -> Node:
    return {"id": number, "type": f"{kind}_NODE", "after": after, "time": time, **attributes}


def attributes(one: Node) -> dict[str, Any]:
    return {key: one[key] for key in one if key not in {"id", "type", "after", "time"}}


def jsonizer(nodes: list[Node]) -> bytes:
    """The text that Chakra's jsonizer would write: numbers of 64 bits are texts."""
    objects = [
        {
            "id": str(one["id"]), "name": f"n{one['id']}", "type": one["type"],
            "dataDeps": [str(other) for other in one["after"]], "durationMicros": str(one["time"]),
            "attr": [{"name": key, _word(value): value} for key, value in attributes(one).items()],
        }
        for one in nodes
    ]  # fmt: skip
    return "\n".join(json.dumps(one, indent=2) for one in [{"version": "1"}, *objects]).encode()


def _word(value: Any) -> str:
    return {bool: "boolVal", int: "int64Val", str: "stringVal"}[type(value)]


def graph(nodes: list[Node]) -> bytes:
    """One object with the list of nodes, in the words of the feeder."""
    listed = [
        {
            "Id": one["id"], "Name": f"n{one['id']}", "NodeType": NUMBERS[one["type"]],
            "data_deps": list(one["after"]), "runtime": one["time"], **attributes(one),
        }
        for one in nodes
    ]  # fmt: skip
    return json.dumps({"workload_graph": listed}).encode()


def varint(number: int) -> bytes:
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def protobuf(nodes: list[Node], *, packed: bool = True) -> bytes:
    """The file that Chakra would write."""
    data = varint(7) + field(1, b"0.0.4")
    for one in nodes:
        text = field(1, one["id"]) + field(2, f"n{one['id']}".encode())
        text += field(3, NUMBERS[one["type"]]) + field(7, one["time"]) + field(6, 12345)
        if packed:
            text += field(5, b"".join(map(varint, one["after"])))
        else:
            text += b"".join(field(5, other) for other in one["after"])
        text += field(10, field(1, b"ratio") + varint(3 << 3 | 1) + pack("<d", 0.5))
        for key, value in attributes(one).items():
            number = {bool: 27, int: 9, str: 29}[type(value)]
            coded = value.encode() if isinstance(value, str) else int(value)
            text += field(10, field(1, key.encode()) + field(number, coded))
        data += varint(len(text)) + text
    return data


FORMS = [
    jsonizer,
    graph,
    protobuf,
    lambda nodes: protobuf(nodes, packed=False),
    lambda nodes: gzip.compress(protobuf(nodes)),
]


def parse(
    *ranks: list[Node], form: Any = jsonizer, groups: Mapping[str, list[int]] | None = None
) -> Workload:
    files = [(BytesIO(form(nodes)), f"t.{rank}") for rank, nodes in enumerate(ranks)]
    return parse_chakra(files, groups)


SEND = node(7, "COMM_SEND", 3, comm_src=0, comm_dst=1, comm_size=500, comm_tag=9)
RECEIVE = node(4, "COMM_RECV", comm_src=0, comm_dst=1, comm_size=500, comm_tag=9)
REDUCE = node(8, "COMM_COLL", comm_type=0, comm_size=4000)


@pytest.mark.parametrize("form", FORMS)
def test_nodes_become_operations(form: Any) -> None:
    first = [
        node(3, "COMP", time=5),
        node(2, "COMP", time=6, is_cpu_op=True),
        SEND,
        node(9, "MEM_LOAD", 7, 2, time=1),
    ]
    found = parse(first, [RECEIVE], form=form)
    assert content(found) == content(
        Workload("x", ["x"], [
            [
                Operation(Kind.COMPUTE, 5000, stream=1),
                Operation(Kind.COMPUTE, 6000, stream=0),
                Operation(Kind.SEND, 500, 1, 9, after=[0]),
                Operation(Kind.COMPUTE, 1000, stream=1, after=[1, 2]),
            ],
            [Operation(Kind.RECEIVE, 500, 0, 9)],
        ])
    )  # fmt: skip
    assert WorkloadRun(found).run().message_bytes == 500


KINDS = {
    0: (Collective.ALL_REDUCE, 900, 2 * 2 * 900),
    2: (Collective.ALL_GATHER, 900, 3 * 2 * 900),
    5: (Collective.BROADCAST, 800, 2 * 800),
    6: (Collective.ALL_TO_ALL, 900, 2 * 900),
    7: (Collective.REDUCE_SCATTER, 900, 2 * 900),
    9: (Collective.ALL_REDUCE, 0, 2 * 2 * 3),
}
"""Collectives by their numbers: what they are, and the bytes that three ranks send."""


@pytest.mark.parametrize("number", KINDS)
@pytest.mark.parametrize("flows", [False, True])
def test_collectives_move_their_bytes(number: int, flows: bool) -> None:
    kind, size, moved = KINDS[number]
    one = node(1, "COMM_COLL", comm_type=number, comm_size=size)
    found = parse(*[[one]] * 3)
    assert all(rank[0].call and rank[0].call.algorithm.collective is kind for rank in found.ranks)
    assert WorkloadRun(found, WorkloadSpec(flows=flows)).run().message_bytes == moved


def test_collectives_of_the_processor_are_computations() -> None:
    one = node(1, "COMM_COLL", time=3, is_cpu_op=True)
    (rank,) = parse([one]).ranks
    assert (rank[0].kind, rank[0].size, rank[0].stream) == (Kind.COMPUTE, 3000, 0)


def group(number: int, name: str) -> Node:
    return node(number, "COMM_COLL", comm_type=0, comm_size=64, pg_name=name)


@pytest.mark.parametrize("flows", [False, True])
def test_groups_of_the_same_ranks_have_collectives_of_their_own(flows: bool) -> None:
    ranks = [[group(1, ""), group(2, "x") | {"comm_size": 90}, group(3, "")] for _ in range(3)]
    found = parse(*ranks)
    moved = WorkloadRun(found, WorkloadSpec(flows=flows)).run().message_bytes
    assert moved == 3 * 4 * (22 + 30 + 22)
    assert {one.call and one.call.number for one in found.ranks[2]} == {0, 1, 2}


def test_groups_are_those_that_use_their_name_or_are_given() -> None:
    ranks = [[group(1, "a")], [group(1, "b")], [group(1, "a"), group(2, "0")], [group(1, "b")]]
    for one in ranks:
        if len(one) == 1:
            one.append(group(2, ""))
    found = parse(*ranks)
    calls = [[one.call and one.call.group for one in rank] for rank in found.ranks]
    everyone = (0, 1, 2, 3)
    assert calls == [[(0, 2), everyone], [(1, 3), everyone]] * 2
    WorkloadRun(found).run()
    given_groups = parse_groups(b'{"a": [2, 0]}')
    calls = [
        [one.call and one.call.group for one in rank]
        for rank in parse(*ranks, groups=dict(given_groups)).ranks  # type: ignore[arg-type]
    ]
    assert calls[0][0] == (2, 0)


@pytest.mark.parametrize("flows", [False, True])
def test_examples_end_after_what_they_depend_on(flows: bool) -> None:
    report = WorkloadRun(read_trace(TRAINING[::-1]), WorkloadSpec(flows=flows)).run()
    assert report.message_bytes == 32768 + 2 * 262144
    assert min(report.ranks) > (4 + 8 + 2) * 1000


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([[REDUCE | {"comm_type": 3}]], "t.0, node 8: comm_type GATHER; known are ALL_REDUCE"),
        ([[REDUCE | {"comm_type": 77}]], "t.0, node 8: comm_type 77; known are"),
        ([[node(8, "COMM_COLL", comm_size=4)]], "t.0, node 8: COMM_COLL_NODE has no comm_type"),
        ([[node(8, "COMM_SEND", comm_size=4)]], "t.0, node 8: COMM_SEND_NODE has no comm_dst"),
        ([[SEND | {"comm_src": 1, "after": ()}], []], "t.0, node 7: comm_src is 1, not 0"),
        ([[SEND], [RECEIVE]], "t.0, node 7 depends on node 3, which is not there"),
        ([[RECEIVE, RECEIVE]], "t.0, node 4 is there already"),
        ([[REDUCE], []], "rank 0, t.0, node 8: ALL_REDUCE of 4000 bytes has no call of rank 1"),
        (
            [[REDUCE], [REDUCE | {"comm_size": 8}]],
            "t.1, node 8: ALL_REDUCE of 8 bytes, but rank 0 has ALL_REDUCE of 4000 bytes in its",
        ),
        ([[REDUCE | {"comm_size": -4}]], "t.0, node 8: comm_size is '-4'; a number is expected"),
        ([[REDUCE | {"type": "OTHER"}]], "t.0, node 8: type 'OTHER'; known are INVALID_NODE,"),
        ([[REDUCE | {"time": "x"}]], "t.0, node 8: the duration is 'x'; a number is expected"),
    ],
)
def test_errors_name_the_file_and_the_node(ranks: list[list[Node]], message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse(*ranks)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "t, line 1: expecting property name enclosed in double quotes"),
        (b'{"id": 1}\n{"id": ]', "t, line 2: expecting value"),
        (b"[1]", "t: an object is expected"),
        (b"\xef\xbb\xbf[1]", "t: an object is expected"),
        (b'{"schema": "1.1", "nodes": [{"id": 1}]}', "t: a trace of PyTorch; convert it by "),
        (b'{"hello": [1, 2]}', "t: JSON without any node of a trace of Chakra"),
        (b"[]", "t: JSON without any node of a trace of Chakra"),
        (b'{"workload_graph": [5]}', "t: a node is no object: '5'"),
        (b'{"id": 1, "attr": [{"x": 1}]}', "t: an attribute without a name"),
        (b"{" + b"\xff" * 5, "t: no JSON in UTF-8"),
        (b"[" * 100_000, "t: too deeply nested"),
        (b"\x1f\x8babc", "t: the compressed data is damaged"),
    ],
)
def test_damaged_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse_chakra([(BytesIO(data), "t")])
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("flag", ["[]", "{}", '"x"', "null"])
def test_a_flag_of_another_type_is_not_set(flag: str) -> None:
    text = f'{{"type": "COMM_COLL_NODE", "attr": [{{"name": "is_cpu_op", "x": {flag}}}]}}'
    with pytest.raises(WorkloadError, match="comm_type"):
        parse_chakra([(BytesIO(text.encode()), "t")])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x05ab", "byte 1: 5 bytes are expected, 2 are left"),
        (b"\x00\x01\x0b", "byte 3: wire type 3"),
        (b"\x00\x02\x08\x80", "byte 4: a number is cut off"),
        (b"\x00" + b"\x80" * 11, "byte 11: a number of more than ten bytes"),
        (b"\x00\x02\x50\x01", "byte 4: an attribute is no message"),
    ],
)
def test_other_bytes_are_no_protocol_buffers(data: bytes, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse_chakra([(BytesIO(data), "t")])
    assert str(error.value) == f"t: no known trace; as Chakra's protocol buffers, {message}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "g, line 1: "),
        (b"[]", "g: an object with the ranks of each group is expected"),
        (b'{"a": [1, 1]}', "g: group 'a': a list of ranks is expected"),
        (b'{"a": [true]}', "g: group 'a': a list of ranks is expected"),
    ],
)
def test_groups_that_are_none_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse_groups(data, "g")
    assert str(error.value).startswith(message)


def test_groups_have_ranks_that_are_there() -> None:
    for ranks in ([0, 5], [1]):
        with pytest.raises(WorkloadError, match=r"^group 'a': rank \d is not in it, or there"):
            parse([group(1, "a")], [], groups={"a": ranks})


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no trace is given"),
        (["missing.goal"], "missing.goal: no such file or directory"),
        (["."], "is a directory"),
        (["a.json", "b.json"], "a.json: the number of its rank is expected, as in step.0.json"),
        (["a.0.json", "b.0.json"], "b.0.json: rank 0 is there already"),
        (["a.0.json", "a.2.json"], "2 files, but none of rank 1"),
        (["empty"], "empty: the file is empty"),
        (["x.goal", "a.0.json"], "x.goal has all ranks: give it alone, without "),
    ],
)
def test_files_that_are_no_trace_are_refused(
    names: list[str], message: str, tmp_path: Path
) -> None:
    for name in {*names} - {"missing.goal", "."}:
        text = {"empty": "", "x.goal": "num_ranks 1\nrank 0 {\n}"}.get(name, "{}")
        (tmp_path / name).write_text(text)
    with pytest.raises(WorkloadError) as error:
        read_trace([tmp_path / name for name in names])
    assert message in str(error.value)


@settings(max_examples=100)
@given(st.data(), st.sampled_from([jsonizer, graph, protobuf]))
def test_any_file_is_read_or_refused(data: st.DataObject, form: Any) -> None:
    nodes = [node(3, "COMP", time=5), SEND | {"comm_dst": 0}, REDUCE]
    good = bytearray(form(nodes))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=3))
    with suppress(WorkloadError):
        assert len(parse_chakra([(BytesIO(good), "t")]).ranks) == 1
