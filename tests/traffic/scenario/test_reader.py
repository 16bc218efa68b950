"""Scenarios from files: what is read, and what stands in the way of reading."""

import subprocess
import sys
from pathlib import Path

import pytest

from rdmawire.errors import RdmaError
from rdmawire.topology import Iommu
from rdmawire.traffic.scenario.context import MAX_LISTED
from rdmawire.traffic.scenario.document import (
    MAX_BYTES,
    MAX_MISTAKES,
    MAX_NODES,
    Mark,
    ScenarioError,
)
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.connection import ConnectionPlan, ReceivePlan
from rdmawire.traffic.scenario.model.expectation import (
    CounterExpectation,
    EventExpectation,
    MemoryExpectation,
    PacketExpectation,
    StateExpectation,
    TimeExpectation,
)
from rdmawire.traffic.scenario.model.host import GpuPlan, HostPlan, MemoryPlan, SrqPlan, WindowPlan
from rdmawire.traffic.scenario.model.network import FaultPlan, LinkPlan, QueuePlan, SwitchPlan
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.reader import read_scenario, read_scenario_text
from rdmawire.traffic.scenario.types import Content, End, Fill, Range, Span
from tests.traffic.scenario.base import mistakes_of, read
from tests.waiting import HANG

HERE = Path(__file__).parent


def test_the_shortest_scenario_has_a_link_and_usual_values() -> None:
    assert read_scenario(HERE / "shortest.yaml") == Scenario(
        name="One WRITE",
        source=str(HERE / "shortest.yaml"),
        hosts=(
            HostPlan(
                name="client",
                mark=Mark(3, 3),
                memory=(
                    MemoryPlan(
                        name="source",
                        size=8192,
                        mark=Mark(3, 21),
                        content=Content(fill=Fill.COUNT),
                    ),
                ),
            ),
            HostPlan(
                name="server",
                mark=Mark(4, 3),
                memory=(MemoryPlan(name="sink", size=8192, mark=Mark(4, 21)),),
            ),
        ),
        links=(LinkPlan(ends=("client", "server"), mark=Mark(3, 3)),),
        connections=(ConnectionPlan(name="a", ends=("client", "server"), mark=Mark(6, 3)),),
        steps=(
            StepPlan(
                verb="write",
                mark=Mark(8, 5),
                end=End("client", "a"),
                local=(Span("client", "source"),),
                remote=Span("server", "sink"),
            ),
        ),
        expectations=(
            MemoryExpectation(
                span=Span("server", "sink"), mark=Mark(10, 12), same_as=Span("client", "source")
            ),
        ),
    )


@pytest.fixture(scope="module")
def everything() -> Scenario:
    return read_scenario(HERE / "everything.yaml")


def test_the_head_of_a_scenario(everything: Scenario) -> None:
    assert (everything.name, everything.seed, everything.time_limit) == (
        "The first packet of a WRITE is lost", 7, 10**9,
    )  # fmt: skip
    assert everything.about.startswith("The responder NAKs")


def test_hosts_have_addresses_gpus_memory_windows_and_queues(everything: Scenario) -> None:
    client, server = everything.hosts
    assert (client.address, client.further, client.mac, client.profile) == (
        "10.0.0.1", ("10.0.0.11",), "02:00:00:00:00:01", "ibta",
    )  # fmt: skip
    assert client.gpus == (GpuPlan(name="gpu0", mark=Mark(10, 12), model="H200", bar1=1 << 20),)
    assert [memory.name for memory in client.memory] == ["source", "tensor", "huge", "rights"]
    _, tensor, huge, rights = client.memory
    assert (tensor.gpu, tensor.via, huge.size, huge.refused) == (
        "gpu0", "peermem", 300 << 20, "EFAULT",
    )  # fmt: skip
    assert (rights.access, rights.page, rights.on_demand, rights.registered) == (
        ("LOCAL_WRITE", "REMOTE_READ"), 2 << 20, True, False,
    )  # fmt: skip
    assert client.srqs == (SrqPlan(name="pool", mark=Mark(16, 23), max_wr=64, limit=8, xrc=True),)
    assert server.windows == (WindowPlan(name="slot", mark=Mark(17, 59)),)
    assert (client.locked_memory, client.peermem, client.dmabuf) == (None, True, True)
    assert (server.locked_memory, server.peermem, server.dmabuf) == (1 << 20, False, False)
    place = server.topology
    assert place is not None
    assert (place.gpu, place.adapter, place.node) == ("GPU0", "mlx5_0", 1)
    assert place.host_machine.settings.iommu is Iommu.TRANSLATED
    assert [switch.name for switch in place.host_machine.switches if switch.acs] == ["sw0"]


def test_switches_have_queues(everything: Scenario) -> None:
    (leaf,) = everything.switches
    assert leaf == SwitchPlan(
        name="leaf",
        mark=Mark(19, 3),
        buffer=1 << 20,
        queue=256 << 10,
        queues=(
            QueuePlan(
                priority=3,
                mark=Mark(24, 7),
                dscp=(26,),
                kmin=16 << 10,
                kmax=64 << 10,
                pmax=0.2,
                xoff=96 << 10,
                xon=64 << 10,
                headroom=40 << 10,
            ),
        ),
    )


def test_a_switch_chooses_among_equal_paths() -> None:
    text = (HERE / "shortest.yaml").read_text() + "switches: {leaf: {balancing: %s}}\n"
    text += "links: {client-leaf: {}, leaf-server: {}}\n"
    assert read_scenario_text(text % "adaptive").switches[0].balancing == "adaptive"
    with pytest.raises(ScenarioError, match=r"expected .*adaptive"):
        read_scenario_text(text % "spray")


def test_links_have_faults(everything: Scenario) -> None:
    first, second = everything.links
    assert (first.name, first.latency, first.rate, first.mtu) == (
        "client-leaf", 1000, 100 * 10**9, 1500,
    )  # fmt: skip
    assert [(fault.do, fault.mark.line) for fault in second.faults] == [
        ("drop", 31), ("mark", 32), ("corrupt", 33), ("set", 34), ("delay", 35),
    ]  # fmt: skip
    drop, mark, corrupt, rewrite, delay = second.faults
    assert (drop.sent_by, drop.packet, drop.nth) == (End("client", "a"), (1,), (1,))
    assert (mark.sent_by, mark.packet) == (End("client", "a", 2), (5, 6, 7, 8))
    assert (corrupt.where, corrupt.nth) == ({"bth.opcode": 0x11}, (2,))
    assert corrupt.options == {"byte": -1, "seal": False}
    assert (rewrite.where, rewrite.chance) == ({"bth.psn": 101}, 0.5)
    assert rewrite.options == {"field": "reth.rkey", "value": 0xDEAD}
    assert delay == FaultPlan(
        do="delay", mark=delay.mark, where={"bth.destqp": 0x12}, options={"by": 10_000}
    )


def test_connections_have_attributes_and_receives(everything: Scenario) -> None:
    (a,) = everything.connections
    assert a == ConnectionPlan(
        name="a",
        ends=("client", "server"),
        mark=Mark(37, 3),
        count=4,
        psn=(0xFFFFFE, 100),
        dscp=26,
        ecn=True,
        attributes={
            "timeout": 14, "retry_cnt": 7, "rnr_retry": 6, "min_rnr_timer": 12, "max_rd_atomic": 4,
        },
        of_end={"server": {"max_dest_rd_atomic": 1}},
        connect="cm",
        congestion="dcqcn",
        parameters={"g": 0.004},
        packets_in_flight=64,
        cnp_interval=50_000,
        srq={"server": "pool"},
        receives=(
            ReceivePlan(
                at=End("server", "a"),
                mark=Mark(53, 9),
                into=(Span("server", "inbox"),),
                count=4,
            ),
        ),
    )  # fmt: skip


def test_steps_have_what_their_verbs_take(everything: Scenario) -> None:
    steps = everything.steps
    assert [step.verb for step in steps] == [
        "write", "send", "send_imm", "read", "fetch_add", "compare_swap", "receive", "free",
        "deregister", "fill", "modify", "disconnect",
    ]  # fmt: skip
    write, send, send_imm, read_, add, swap, receive, free, _, fill, modify, _ = steps
    assert (write.name, write.flags, write.status) == ("w1", ("SIGNALED", "FENCE"), "SUCCESS")
    assert (send.end, send.inline, send.times, send.depth, send.barrier) == (
        End("client", "a", 1), b"hello", 100, 8, True,
    )  # fmt: skip
    assert send_imm.local == (Span("client", "source", 0, 100),)
    assert send_imm.values == {"imm": 7}
    assert (read_.remote, read_.at) == (Span("server", "sink", 0, 4096), 20_000)
    assert (add.values, add.after) == ({"add": 5}, ("w1",))
    assert (swap.values, swap.status) == ({"compare": 0, "swap": 9}, "REM_ACCESS_ERR")
    assert (receive.local, receive.status) == ((Span("server", "inbox"),), None)
    assert (free.end, free.values, free.status) == (
        None, {"what": Span("client", "tensor")}, None,
    )  # fmt: skip
    assert fill.values["content"] == Content(fill=Fill.HEX, data=b"\xaa")
    assert modify.values == {"state": "SQD"}


def test_expectations_are_values(everything: Scenario) -> None:
    assert everything.expectations == (
        MemoryExpectation(
            span=Span("server", "sink"), mark=Mark(69, 5), same_as=Span("client", "source")
        ),
        MemoryExpectation(
            span=Span("server", "inbox", 0, 5),
            mark=Mark(70, 5),
            content=Content(fill=Fill.TEXT, data=b"hello"),
        ),
        CounterExpectation(of="client", counter="retransmits", range=Range(4, 8), mark=Mark(72, 5)),
        CounterExpectation(
            of="client", counter="gpu_direct_bytes", range=Range(65536, 65536), mark=Mark(73, 5)
        ),
        CounterExpectation(
            of="leaf:server", counter="marks", range=Range(1, None), mark=Mark(74, 5)
        ),
        CounterExpectation(of="client-leaf", counter="lost", range=Range(0, 0), mark=Mark(75, 5)),
        PacketExpectation(
            where={"bth.opcode": 0x11, "aeth.ack": 3, "aeth.value": 0},
            range=Range(1, 1),
            mark=Mark(77, 7),
            sent_by="server",
        ),
        PacketExpectation(
            where={"bth.opcode": 0x81},
            range=Range(1, None),
            mark=Mark(78, 7),
            link="leaf-server",
            arrived=True,
        ),
        StateExpectation(end=End("client", "a"), state="RTS", mark=Mark(79, 12)),
        StateExpectation(end=End("server", "a"), state="ERR", mark=Mark(79, 27)),
        EventExpectation(
            host="server", event="AccessViolation", range=Range(1, 1), mark=Mark(80, 12)
        ),
        TimeExpectation(range=Range(0, 10**6), mark=Mark(81, 9)),
    )


# What stands in the way.


@pytest.mark.parametrize(
    ("path", "found"),
    [("nowhere.yaml", "no such file or directory"), (".", "is a directory")],
)
def test_a_file_that_cannot_be_read_says_why(path: str, found: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_scenario(path)
    assert str(caught.value) == f"{path}: found {found}; expected the file of a scenario, to read"


def test_a_scenario_error_is_one_of_rdmawire() -> None:
    assert issubclass(ScenarioError, RdmaError)


def test_of_many_errors_the_first_are_listed_and_the_others_counted() -> None:
    keys = "".join(f"k{number}: 1\n" for number in range(MAX_MISTAKES + 30))
    with pytest.raises(ScenarioError) as caught:
        read(keys)
    assert len(caught.value.mistakes) == MAX_MISTAKES
    assert caught.value.more == 32  # and there is neither a name nor are there hosts
    assert str(caught.value).endswith("\nand 32 more")


def test_mistakes_come_in_the_order_of_the_file() -> None:
    found = mistakes_of("hosts: 1\nseed: x\nname: [1]\n")
    assert [mistake.mark for mistake in found] == [Mark(1, 8), Mark(2, 7), Mark(3, 7)]


def test_a_long_text_is_shortened() -> None:
    (mistake,) = mistakes_of(f"{'x' * 1000}: 1\n" + (HERE / "shortest.yaml").read_text())
    assert len(str(mistake)) < 300


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_nothing_is_no_scenario(text: str) -> None:
    (mistake,) = mistakes_of(text)
    assert mistake.found == "nothing"


def test_bytes_that_are_no_text_have_a_place() -> None:
    (mistake,) = mistakes_of(b"name: One\nabout: \xff\n")
    assert str(mistake) == "it.yaml:2:8: found byte 0xff; expected text in UTF-8"


def test_characters_that_yaml_does_not_have_have_a_place() -> None:
    (mistake,) = mistakes_of("name: One\nabout: \x00\n")
    assert mistake.mark == Mark(2, 8)


def test_a_text_that_is_too_long_is_not_read() -> None:
    (mistake,) = mistakes_of(b" " * (MAX_BYTES + 1))
    assert mistake.found == f"more than {MAX_BYTES} bytes"


def laughs(levels: int) -> str:
    """Each level ten times the one before."""
    first = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    more = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, levels))
    return first + "".join(more)


def test_a_billion_laughs_are_not_laughed() -> None:
    (mistake,) = mistakes_of(laughs(9))
    assert mistake.found == f"more than {MAX_NODES} values"


def test_aliases_stand_for_what_they_name() -> None:
    text = (HERE / "shortest.yaml").read_text()
    again = text.replace("source: {", "source: &it {").replace("sink: 8 KiB", "sink: *it")
    (client, server) = read(again).hosts
    assert (client.memory[0].content, server.memory[0].content.fill) == (
        server.memory[0].content, Fill.COUNT,
    )  # fmt: skip


MERGED = """
name: Alike
hosts:
  client: &host {profile: rxe, memory: &bytes {source: 8 KiB}}
  server:
    memory: {source: 4 KiB, <<: [{sink: 1 KiB}, *bytes, {sink: 2 KiB}]}
    <<: *host
connections: {a: [client, server]}
"""


def test_keys_are_merged_and_those_of_ones_own_go_before() -> None:
    """https://yaml.org/type/merge.html: of several, the first goes before the others."""
    (_, server) = read(MERGED).hosts
    assert server.profile == "rxe"
    assert {memory.name: memory.size for memory in server.memory} == {"source": 4096, "sink": 1024}
    without = MERGED.replace("    <<: *host\n", "    profile: rxe\n")
    assert read(without).hosts[1] == server


def test_merged_keys_count_as_if_they_were_written_again() -> None:
    keys = ", ".join(f"k{n}: x" for n in range(1000))
    more = "".join(f"b{n}: {{<<: *a}}\n" for n in range(20))
    (mistake,) = mistakes_of(f"a: &a {{{keys}}}\n{more}")
    assert mistake.found == f"more than {MAX_NODES} values"


ALONE = """
name: One of each
hosts: {client: {}, server: {memory: {sink: 8}}}
links: {client-server: {faults: {drop: {nth: 1}}}}
connections: {a: {between: [client, server], receives: {at: server/a}}}
expect:
  packets: {where: {bth.psn: 100}, count: 1, on: server-client}
  counters: {server-client.lost: 1}
"""


def test_one_alone_is_a_list_of_one() -> None:
    scenario = read(ALONE)
    (fault,), (receive,) = scenario.links[0].faults, scenario.connections[0].receives
    assert (fault.do, receive.at) == ("drop", End("server", "a"))
    word = ALONE.replace("{drop: {nth: 1}}", "drop")
    assert read(word).links[0].faults[0].do == "drop"


def test_a_link_is_named_from_either_end() -> None:
    counter, packets = read(ALONE).expectations
    assert isinstance(counter, CounterExpectation)
    assert isinstance(packets, PacketExpectation)
    assert (counter.of, packets.link) == ("client-server", "client-server")


@pytest.mark.parametrize(
    "text",
    [
        'about: "\\UFFFFFFFF"\n',
        'about: "\\U00110000"\n',
        f"%YAML 1.{'9' * 5000}\n---\nname: x\n",
        "%TAG ! tag:%ff\n--- !x y\n",
        "[" * 100_000,
        "{" * 100_000,
        "- " * 50_000,
        "? " * 10_000,
        "&a " * 1000,
        "!" * 10_000,
        "name: " + "9" * 10_000 + "\nseed: " + "9" * 10_000,
        "seed: 0x" + "f" * 10_000,
        "\ufeffname: x\n",
    ],
)
def test_hostile_texts_are_mistakes(text: str) -> None:
    assert mistakes_of(text)


@pytest.mark.parametrize("module", ["rdmawire", "rdmawire.cli.main", "rdmawire.cli.run"])
def test_start_up_imports_neither_pydantic_nor_yaml(module: str) -> None:
    code = f"import sys, {module}; sys.exit(bool({{'pydantic', 'yaml'}} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG)


def test_yaml_is_imported_when_a_scenario_is_read_and_not_before() -> None:
    code = (
        "import sys, rdmawire.traffic.scenario.reader as r; assert 'yaml' not in sys.modules;"
        "r.read_scenario(sys.argv[1]); assert 'yaml' in sys.modules"
    )
    command = [sys.executable, "-c", code, str(HERE / "shortest.yaml")]
    subprocess.run(command, check=True, timeout=HANG)


def test_reading_twice_gives_the_same() -> None:
    text = (HERE / "everything.yaml").read_text()
    assert read_scenario_text(text) == read_scenario_text(text)


def test_ranges_that_stand_for_too_much_are_refused() -> None:
    fault = "      - drop: {nth: [1..65536, 65537..131072]}\n"
    text = f"links:\n  client-server:\n    faults:\n{fault * 3}"
    found = mistakes_of((HERE / "shortest.yaml").read_text() + text)
    assert [mistake.expected for mistake in found] == [f"{MAX_LISTED} in a file"]


MANY = 2000

CROWDS = {
    "hosts": "".join(f"  h{n}: {{}}\n" for n in range(MANY)),
    "switches": "".join(f"  s{n}: {{}}\n" for n in range(MANY)),
    "links": "".join(f"  s{n}-s{n + 1}: {{}}\n" for n in range(MANY - 1)),
}


def test_crowds_are_read_as_well_as_pairs() -> None:
    head = "name: Many\n" + "".join(f"{key}:\n{text}" for key, text in CROWDS.items())
    ways = "".join(f"  h{n}-s{n}: {{}}\n" for n in range(MANY))
    pairs = "".join(f"  c{n}: h{n}, h{MANY - 1 - n}\n" for n in range(MANY // 2))
    scenario = read(f"{head}{ways}connections:\n{pairs}")
    assert len(scenario.links) == 2 * MANY - 1
    assert scenario.connections[-1].ends == ("h999", "h1000")


def test_hosts_of_unconnected_networks_have_no_path() -> None:
    head = "name: Many\n" + "".join(f"{key}:\n{text}" for key, text in CROWDS.items())
    cut = head.replace("  s7-s8: {}\n", "")
    ways = "".join(f"  h{n}-s{n}: {{}}\n" for n in range(MANY))
    (mistake,) = mistakes_of(f"{cut}{ways}connections: {{near: [h0, h7], far: [h7, h8]}}\n")
    assert mistake.found == "no path from h7 to h8"
