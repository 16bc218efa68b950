"""The C library after the end of its service: objects of every kind, destroyed in any order."""

import subprocess
from pathlib import Path

import pytest

from rdmawire.verbs_service.device import numbered
from rdmawire.verbs_service.network import DirectNetwork
from rdmawire.verbs_service.server import Server
from tests.verbs_service.c_programs import environment, program
from tests.verbs_service.running import Service
from tests.waiting import HANG


@pytest.mark.parametrize("seed", range(1, 7))
def test_objects_in_use_are_busy_also_without_a_service(tmp_path: Path, seed: int) -> None:
    socket = tmp_path / "verbs.sock"
    service = Service(socket, Server(socket, numbered(1), DirectNetwork()))
    path = program("survivor", "address", "undefined")
    pipe = subprocess.PIPE
    variables = environment(path.parent, socket) | {"RDMAWIRE_TRACE": "0"}
    with subprocess.Popen(
        [path, str(seed)], env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as running:
        assert running.stdout is not None
        ready = running.stdout.readline()
        service.close()
        _, said = running.communicate("\n", timeout=HANG)
    assert (ready, running.returncode) == ("ready\n", 0), said
