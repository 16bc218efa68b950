"""Two agents of NIXL in two processes: a READ and a WRITE of host memory through UCX.

``python -m tools.acceptance.nixl_agents TARGET INITIATOR`` names the devices of the two agents, and
prints what came of it; the exit status is 1 if data differ. Needs the package nixl-cu12 of PyPI.
"""

import os
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tools.acceptance.peers import WRITTEN, main, pattern

_SIZE = 1 << 20


def _agent(name: str, device: str) -> Any:
    """Return an agent whose UCX uses one device. The variable is read when UCX is loaded."""
    os.environ["UCX_NET_DEVICES"] = f"{device}:1"
    nixl: Any = import_module("nixl_cu12._api")
    return nixl.nixl_agent(name, nixl.nixl_agent_config(backends=["UCX"]))


def _register(agent: Any, data: Any) -> tuple[int, int, int]:
    address = data.ctypes.data
    agent.register_memory(agent.get_reg_descs([(address, _SIZE, 0, "")], "DRAM"))
    return address, _SIZE, 0


def serve(pipe: Connection, device: str) -> bool:
    """Be the target: offer a pattern, and say what it became."""
    agent = _agent("target", device)
    data = pattern(_SIZE)
    place = _register(agent, data)
    pipe.send((agent.get_agent_metadata(), place))
    agent.add_remote_agent(pipe.recv())
    pipe.send("ready")
    while not pipe.poll(0.001):
        agent.get_new_notifs()
    right = bool((data == WRITTEN).all())
    pipe.send(right)
    return right


def _transfer(agent: Any, operation: str, local: Any, remote: Any, peer: str) -> str:
    """Transfer once, and return the state at the end."""
    handle = agent.initialize_xfer(operation, local, remote, peer, b"")
    state: str = agent.transfer(handle, b"done")
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    return state


def use(pipe: Connection, device: str) -> bool:
    """Be the initiator: read the pattern, write another. Return whether both are right."""
    agent = _agent("initiator", device)
    data = np.zeros(_SIZE, np.uint8)
    place = _register(agent, data)
    metadata, target = pipe.recv()
    name = agent.add_remote_agent(metadata)
    peer = name if isinstance(name, str) else name.decode()
    pipe.send(agent.get_agent_metadata())
    pipe.recv()
    local, remote = (agent.get_xfer_descs([one], "DRAM") for one in (place, target))
    read = _transfer(agent, "READ", local, remote, peer), bool((data == pattern(_SIZE)).all())
    data[:] = WRITTEN
    written = _transfer(agent, "WRITE", local, remote, peer)
    pipe.send("end")
    arrived = pipe.recv()
    print(f"READ {read[0]} {read[1]}, WRITE {written} {arrived}", flush=True)
    return read[1] and arrived


if __name__ == "__main__":
    sys.exit(main(serve, use, *sys.argv[1:]))
