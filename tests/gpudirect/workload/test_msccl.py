"""Algorithms of MSCCL: they are done on data, and what is wrong in them is found."""

import contextlib
import re
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.gpudirect.workload import (
    Collective,
    Workload,
    WorkloadError,
    WorkloadRun,
    WorkloadSpec,
    parse_msccl,
    ring_algorithm,
)
from rdmawire.gpudirect.workload.buffers import EXPECTED

EXAMPLE = Path(__file__).parents[3] / "examples" / "workloads" / "allreduce.xml"
TEXT = EXAMPLE.read_text(encoding="utf-8")


def parse(text: str, size: int = 0) -> Workload:
    return parse_msccl(BytesIO(text.encode()), "a.xml", size)


def run(text: str, **settings: bool) -> None:
    WorkloadRun(parse(text, 64), WorkloadSpec(**settings)).run()  # type: ignore[arg-type]


@pytest.mark.parametrize("flows", [False, True])
def test_an_example_is_done_on_data(flows: bool) -> None:
    report = WorkloadRun(parse(TEXT, 8192), WorkloadSpec(flows=flows)).run()
    assert (report.messages, report.message_bytes) == (8, 8 * 8192)


def written(collective: Collective, gpus: int, *, in_place: bool = False) -> str:
    """The file of a ring."""
    found = ring_algorithm(collective, gpus)
    place = f'inplace="{int(in_place)}" outofplace="{int(not in_place)}"'
    lines = [
        (
            f'<algo name="ring" nchannels="1" proto="Simple" ngpus="{gpus}" {place} '
            f'nchunksperloop="{found.chunks}" coll="{collective.value}">'
        )
    ]
    for gpu, program in enumerate(found.programs):
        lines.append(f'<gpu id="{gpu}" i_chunks="0" o_chunks="0" s_chunks="0">')
        for number, block in program.blocks.items():
            lines.append(
                f'<tb id="{number}" send="{block.send}" recv="{block.receive}" '
                f'chan="{block.channel}">'
            )
            for index, step in enumerate(block.steps):
                lines.append(
                    f'<step s="{index}" type="{step.type}" srcbuf="{step.source.buffer}" '
                    f'srcoff="{step.source.offset}" dstbuf="{step.target.buffer}" '
                    f'dstoff="{step.target.offset}" cnt="{step.chunks}" depid="-1" deps="-1" '
                    'hasdep="0"/>'
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


CHECKED = [one for one in EXPECTED if one is not Collective.BROADCAST]


@pytest.mark.parametrize("collective", CHECKED)
def test_written_rings_are_read_and_done(collective: Collective) -> None:
    text = written(collective, 3)
    run(text)
    call = parse(text).ranks[0][0].call
    assert call is not None
    assert call.algorithm.programs[1].blocks[0].steps[0].type == (
        ring_algorithm(collective, 3).programs[1].blocks[0].steps[0].type
    )


@pytest.mark.parametrize(
    "collective",
    [Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER],
)
def test_rings_may_be_in_place(collective: Collective) -> None:
    run(written(collective, 3, in_place=True))


STEP = re.compile(r"<step [^>]*/>")


@settings(max_examples=60)
@given(
    st.sampled_from(CHECKED), st.integers(0, 30), st.sampled_from(["rrc", "rcs", "r", "rrs", "s"])
)
def test_a_step_of_another_type_is_no_right_result(
    collective: Collective, place: int, kind: str
) -> None:
    text = written(collective, 3)
    steps = list(STEP.finditer(text))
    chosen = steps[place % len(steps)]
    changed = re.sub(r'type="\w+"', f'type="{kind}"', chosen[0])
    if changed == chosen[0]:
        return
    broken = text[: chosen.start()] + changed + text[chosen.end() :]
    with pytest.raises(WorkloadError) as error:
        run(broken)
    assert "\n" not in str(error.value)


def test_a_wrong_result_names_gpu_and_chunk() -> None:
    broken = TEXT.replace('type="rrc" srcbuf="i"', 'type="r" srcbuf="i"', 1)
    for flows in (False, True):
        with pytest.raises(
            WorkloadError, match=r"^doubling: the allreduce of GPU \d is wrong in chunk 0 of 2$"
        ):
            run(broken, flows=flows)


def test_a_circle_of_thread_blocks_is_found() -> None:
    broken = TEXT.replace('cnt="2" depid="-1" deps="-1" hasdep="0"', 'cnt="2" depid="1" deps="1"')
    message = "rank 0: a cycle of dependencies: allreduce tb 1 after allreduce tb 1 "
    with pytest.raises(WorkloadError, match="^" + message):
        run(broken)


def shorter(kind: str) -> str:
    """The example with one chunk less in the first step of this type."""
    start = TEXT.index(f'type="{kind}"')
    return TEXT[:start] + TEXT[start:].replace('cnt="2"', 'cnt="1"', 1)


def test_messages_of_other_lengths_are_refused() -> None:
    with pytest.raises(WorkloadError, match="but its message is longer"):
        run(shorter("rrc"))
    with pytest.raises(WorkloadError, match="GPU 1 receives a message of 1 chunks by a step of 2"):
        run(shorter("s"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('coll="allreduce"', 'coll="gather"', "line 2: <algo> coll='gather'; known are allreduce"),
        ('ngpus="4"', 'ngpus="5"', "line 2: <algo> has no <gpu id=4> of 5"),
        ('ngpus="4"', 'ngpus="x"', "ngpus='x': a number from 1 to 1024 is expected"),
        ('ngpus="4"', "", "line 2: <algo> has no ngpus"),
        ('<gpu id="1"', '<gpu id="0"', "line 13: <gpu> id=0 is there already"),
        ('<tb id="1"', '<tb id="0"', "line 8: <tb> id=0 is there already"),
        ('send="1" recv="1"', 'send="0" recv="1"', "line 4: <tb> is of GPU 0, and has it"),
        ('send="1" recv="1"', 'send="-1" recv="1"', "line 5: <step> type=s in a block without"),
        ('send="2" recv="2"', 'send="1" recv="2"', "line 8: <tb> has a peer on channel 0 that"),
        ('chan="0"', 'chan="256"', "line 4: <tb> chan='256': a number from 0 to 255"),
        (' s="1"', ' s="2"', "line 6: <step> s=2: step 1 is expected"),
        ('type="rrc"', 'type="rrx"', "line 6: <step> type='rrx'; known are s, r, rcs, rrc"),
        ('srcoff="0"', 'srcoff="1"', "line 5: <step> srcoff=1: chunks 1 to 2 of buffer i, which"),
        ('srcbuf="i"', 'srcbuf="s"', "chunks 0 to 1 of buffer s, which has 0"),
        ('srcbuf="i"', 'srcbuf="q"', "line 5: <step> srcbuf='q'; known are i, o, s"),
        ('depid="0" deps="1"', 'depid="0" deps="9"', "line 9: tb 1 of GPU 0 waits for step 9 of"),
        ("<step", "<stop", "line 5: <stop> inside <tb>; expected step"),
        ("</tb>", "", "line 8: <tb> inside <tb>; expected step"),
        ("</algo>", "</gpu>", "line 43: mismatched tag"),
        ("<algo", "<!DOCTYPE a [<!ENTITY x 'y'>]><algo", "line 2: a document type; an algorithm"),
        ("<algo", "<gpu/><algo", "line 2: <gpu> at the top; expected algo"),
    ],
)
def test_errors_name_the_line(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(WorkloadError) as error:
        parse(TEXT.replace(old, new, 1))
    assert str(error.value).startswith("a.xml, line ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["many", "utf-32", "euc-jp", "idna"])
def test_strange_encodings_are_refused(name: str) -> None:
    with pytest.raises(WorkloadError, match=r"^a\.xml"):
        parse(f"<?xml version='1.0' encoding='{name}'?>" + TEXT)


def test_sizes_have_a_byte_for_each_chunk() -> None:
    with pytest.raises(WorkloadError, match=r"^a\.xml: 1 bytes are too few for 2 chunks"):
        parse(TEXT, 1)
    with pytest.raises(WorkloadError, match="nchunksperloop=2 is no multiple of 4 GPUs"):
        parse(TEXT.replace("allreduce", "allgather"))


@settings(max_examples=100)
@given(st.data())
def test_any_file_is_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.integers(0, 30))
        text[at : at + length] = data.draw(st.binary(max_size=4))
    with contextlib.suppress(WorkloadError):
        assert parse_msccl(BytesIO(text)).ranks
