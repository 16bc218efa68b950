"""The C libraries under ThreadSanitizer, where the compiler has it: no data races."""

import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.verbs_service.c_programs import program as built
from tests.verbs_service.c_programs import run
from tests.verbs_service.running import Service, running

# The libraries are compiled once more for it. The same programs run under the other sanitizers in
# the fast tests.
pytestmark = pytest.mark.slow

NO_RACE = "int main(void) { return 0; }"


@cache
def has_thread_sanitizer(folder: Path) -> bool:
    """Whether the compiler has it, and its programs run here."""
    path = folder / "no-race"
    command = [os.environ.get("CC", "cc"), "-fsanitize=thread", "-x", "c", "-", "-o", str(path)]
    done = subprocess.run(command, input=NO_RACE, text=True, capture_output=True, check=False)
    return not done.returncode and not subprocess.run([path], check=False).returncode


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    if not has_thread_sanitizer(folder):
        pytest.skip("the compiler has no ThreadSanitizer: install libtsan")
    with running(folder) as found:
        yield found


@pytest.mark.parametrize(
    ("program", "scenario"),
    [
        ("threads", "traffic"),
        ("threads", "children"),
        ("threads", "close_while_copying"),
        ("messages", "completion_events"),
        ("messages", "dmabuf"),
        ("connections", "connection"),
        ("connections", "synchronous"),
        ("rsockets", "both_directions"),
        ("rsockets", "waiting"),
        ("rsockets", "datagrams"),
    ],
)
def test_threads_race_for_nothing(service: Service, program: str, scenario: str) -> None:
    done = run(built(program, "thread"), service.path, scenario)
    assert done.returncode == 0, done.stderr
    assert "WARNING: ThreadSanitizer" not in done.stderr
