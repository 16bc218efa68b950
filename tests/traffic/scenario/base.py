"""A scenario with everything in it, and where each thing with keys stands in it."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import yaml

from rdmawire.traffic.scenario.document import (
    Diagnostics,
    Items,
    Mark,
    Mistake,
    Node,
    Pairs,
    Scalar,
    ScenarioError,
)
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.step import VERBS
from rdmawire.traffic.scenario.reader import read_scenario_text, read_tree
from rdmawire.traffic.scenario.section import Section, sections_in

TEXT = """\
name: Everything
hosts:
  client:
    topology: {host: dgx-h200}
    gpus: {gpu0: {model: H200}}
    windows: [slot]
    memory:
      whole: {size: 64 KiB}
      source: {size: 8 KiB}
      eight: {size: 8}
      quick: {size: 4 KiB, fast: true}
      tensor: {size: 64 KiB, gpu: gpu0}
    shared receives: {pool: {max_wr: 64}}
  server:
    windows: [slot]
    memory:
      sink: {size: 8 KiB}
      quick: {size: 4 KiB, fast: true}
    shared receives: {pool: {max_wr: 64}}
switches:
  leaf: {queues: {3: {dscp: 26}}}
links:
  client-leaf: {rate: 100 Gbit/s}
  leaf-server:
    rate: 100 Gbit/s
    faults:
      - drop: {}
      - duplicate: {}
      - delay: {}
      - reorder: {}
      - corrupt: {}
      - truncate: {}
      - mark: {}
      - set: {field: bth.psn, value: 7}
connections:
  a:
    between: [client, server]
    count: 4
    attributes: {}
    congestion: {dcqcn: {}}
    receives: [{at: server/a}]
  t: {between: [client, server], congestion: {timely: {}}}
  m: {between: [client, server], connect: cm}
  o: {between: [client, server], alternate: true}
work:
  - inject: {name: w1, on: client/a, opcode: RC_SEND_ONLY, payload: {size: 8}}
  - write: {on: client/a, to: server.sink}
  - write_imm: {on: client/a, to: server.sink, imm: 1}
  - send: {on: client/a}
  - send_imm: {on: client/a, imm: 1}
  - send_inv: {on: client/a, key: server.slot}
  - read: {on: client/a, from: server.sink}
  - compare_swap: {on: client/a, into: client.eight, to: server.sink, compare: 1, swap: 2}
  - fetch_add: {on: client/a, into: client.eight, to: server.sink, add: 1}
  - atomic_write: {on: client/a, from: client.eight, to: server.sink}
  - flush: {on: client/a, to: server.sink}
  - bind_mw: {on: client/a, what: client.slot, to: client.source}
  - reg_mr: {on: client/a, what: client.quick}
  - local_inv: {on: client/a, what: client.slot}
  - receive: {on: server/a}
  - register: {what: client.source}
  - deregister: {what: client.source}
  - free: {what: client.tensor}
  - fill: {what: client.source, fill: count}
  - modify: {on: client/a, state: SQD}
  - migrate: {on: client/o}
  - disconnect: {on: client/m}
  - inject: {on: client/a, opcode: RC_RDMA_WRITE_ONLY}
  - allreduce: {among: [client, server], size: 8 KiB}
  - allgather: {among: [client, server], size: 8 KiB}
  - reducescatter: {among: [client, server], size: 8 KiB}
  - broadcast: {among: [client, server], size: 8 KiB}
  - reduce: {among: [client, server], size: 8 KiB}
  - alltoall: {among: [client, server], size: 8 KiB}
  - sendrecv: {among: [client, server], size: 8 KiB}
expect:
  memory: {client.source: {fill: zeros}}
  packets: [{where: {}, count: 1}]
"""
"""Every thing with keys once; spans, names and ends of the schema's samples are there."""

Path = tuple[str | int, ...]

PLACES: dict[str, Path] = {
    "a scenario": (),
    "a host": ("hosts", "client"),
    "the topology of a host": ("hosts", "client", "topology"),
    "a GPU": ("hosts", "client", "gpus", "gpu0"),
    "memory": ("hosts", "client", "memory", "source"),
    "bytes": ("expect", "memory", "client.source"),
    "a shared receive queue": ("hosts", "client", "shared receives", "pool"),
    "a switch": ("switches", "leaf"),
    "a queue": ("switches", "leaf", "queues", "3"),
    "a link": ("links", "client-leaf"),
    "a connection": ("connections", "a"),
    "attributes of queue pairs": ("connections", "a", "attributes"),
    "the scheme dcqcn": ("connections", "a", "congestion", "dcqcn"),
    "the scheme timely": ("connections", "t", "congestion", "timely"),
    "receives": ("connections", "a", "receives", 0),
    "expectations": ("expect",),
    "packets": ("expect", "packets", 0),
    **{
        f"the fault {do}": ("links", "leaf-server", "faults", place, do)
        for place, do in enumerate(
            ("drop", "duplicate", "delay", "reorder", "corrupt", "truncate", "mark", "set")
        )
    },
    **{f"the verb {word}": ("work", place, word) for place, word in enumerate(VERBS, 1)},
    "a payload": ("work", 0, "inject", "payload"),
}
"""Where each thing with keys stands."""

SECTIONS: tuple[type[Section], ...] = tuple(sections_in(Scenario))


def parsed(text: str) -> Any:
    """YAML as texts, lists and mappings."""
    return yaml.load(text, Loader=yaml.BaseLoader)


_BASE: Final = parsed(TEXT)


def base() -> Any:
    """The scenario as texts, lists and mappings, to be changed."""
    return deepcopy(_BASE)


def at(document: Any, path: Path) -> Any:
    """What stands in a document at some place."""
    for step in path:
        document = document[step]
    return document


def noded(value: Any, places: Iterator[int]) -> Node:
    """Texts, lists and mappings as a tree, in which each node has a line of its own."""
    mark = Mark(next(places), 1)
    if isinstance(value, str):
        return Scalar(value, mark)
    if isinstance(value, list):
        return Items(tuple(noded(item, places) for item in value), mark)
    pairs = ((noded(key, places), noded(one, places)) for key, one in value.items())
    return Pairs(tuple((key, one) for key, one in pairs if isinstance(key, Scalar)), mark)


def errors_of(root: Node) -> tuple[Mistake, ...]:
    """What is amiss with a tree."""
    try:
        read_tree(root, Diagnostics("it.yaml"))
    except ScenarioError as error:
        return error.mistakes
    return ()


def node_at(root: Node, path: Path) -> Node:
    """The node at some place of a tree."""
    for step in path:
        if isinstance(step, int):
            assert isinstance(root, Items)
            root = root.items[step]
            continue
        assert isinstance(root, Pairs)
        found = root.get(step)
        assert found is not None, step
        root = found
    return root


def read(text: str | bytes) -> Scenario:
    return read_scenario_text(text, "it.yaml")


def mistakes_of(text: str | bytes) -> tuple[Mistake, ...]:
    """What is amiss with a text; nothing, if it can be read."""
    try:
        read_scenario_text(text, "it.yaml")
    except ScenarioError as error:
        return error.mistakes
    return ()
