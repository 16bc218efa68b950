"""Contexts that share an open device: imported by its ``cmd_fd``."""

import os
from collections.abc import Iterator
from errno import EBADF, EBUSY, EINVAL
from pathlib import Path

import pytest

from rdmawire.errors import VerbsError
from rdmawire.verbs_service.protocol import COUNTERS
from tests.verbs_service.client import ALL, Connection, Memory
from tests.verbs_service.running import Service, descriptors, running
from tests.waiting import wait_until


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path) as one:
        yield one


class Process:
    """A connection with an open or an imported device, and its descriptors."""

    def __init__(self, service: Service, cmd_fd: int | None = None) -> None:
        self.connection = Connection(service.path)
        self.call = self.connection.call
        if cmd_fd is None:
            _, self.fds = self.connection.call_for_fds("open_device", 0)
        else:
            _, self.fds = self.connection.call_for_fds("import_device", fds=(cmd_fd,))

    @property
    def cmd_fd(self) -> int:
        return self.fds[0]

    def close(self) -> None:
        self.connection.close()
        for fd in self.fds:
            os.close(fd)


def test_objects_live_until_the_last_context_closes(service: Service) -> None:
    first = Process(service)
    memory = Memory(4096)
    (pd,) = first.call("alloc_pd")
    mr, lkey, rkey = first.call("reg_mr", pd, memory.address, 4096, memory.address, ALL, 0)
    second = Process(service, first.cmd_fd)
    third = Process(service, first.cmd_fd)
    first.close()
    second.call("import_pd", pd)
    assert second.call("import_mr", mr) == [4096, lkey, rkey]
    with pytest.raises(VerbsError) as refused:
        second.call("dealloc_pd", pd)
    assert refused.value.errno == EBUSY
    second.close()
    third.call("dereg_mr", mr)
    third.call("dealloc_pd", pd)
    with pytest.raises(VerbsError) as refused:
        third.call("import_pd", pd)
    assert refused.value.errno == EINVAL
    third.close()


def test_each_handle_names_one_object_of_an_open_device(service: Service) -> None:
    first, other = Process(service), Process(service)
    second = Process(service, first.cmd_fd)
    (pd,) = first.call("alloc_pd")
    (again,) = second.call("alloc_pd")
    (channel,) = second.connection.call_for_fds("create_comp_channel")[0]
    assert len({pd, again, channel}) == 3
    first.call("dealloc_pd", again)
    for call, handle in (("import_pd", channel), ("import_mr", pd), ("import_dm", pd)):
        with pytest.raises(VerbsError) as refused:
            first.call(call, handle)
        assert refused.value.errno == EINVAL
    with pytest.raises(VerbsError):
        first.call("destroy_comp_channel", channel)  # it is the other process's
    with pytest.raises(VerbsError):
        other.call("import_pd", pd)
    for one in (first, second, other):
        one.close()


def test_no_other_descriptor_names_a_device(service: Service) -> None:
    first = Process(service)
    ends = os.pipe()
    for fd in (*first.fds[1:], *ends):
        with pytest.raises(VerbsError) as refused:
            Process(service, fd)
        assert refused.value.errno == EBADF
    cmd_fd = os.dup(first.cmd_fd)
    first.close()

    def is_gone() -> bool:
        try:
            Process(service, cmd_fd).close()
        except VerbsError as error:
            return error.errno == EBADF
        return False

    wait_until(is_gone)
    for fd in (cmd_fd, *ends):
        os.close(fd)


def test_descriptors_of_importing_processes_are_closed(service: Service) -> None:
    first = Process(service)
    before = descriptors()
    memory = Memory(4096)
    for number in range(8):
        process = Process(service, first.cmd_fd)
        (pd,) = process.call("alloc_pd")
        if number == 0:
            process.call("reg_mr", pd, memory.address, 4096, memory.address, ALL, 0)
        process.close()
    # The memory of the process, its copy socket and buffer: a region has them still.
    wait_until(lambda: descriptors() <= before + 3)
    assert first.call("read_counters", 0)[COUNTERS.index("mrs")] == 1
    first.close()
    wait_until(lambda: descriptors() < before)


def test_counters_count_shared_objects_once(service: Service) -> None:
    first = Process(service)
    second = Process(service, first.cmd_fd)
    memory = Memory(4096)
    (pd,) = first.call("alloc_pd")
    first.call("reg_mr", pd, memory.address, 4096, memory.address, ALL, 0)
    counters = dict(zip(COUNTERS, second.call("read_counters", 0), strict=True))
    assert (counters["mrs"], counters["contexts"]) == (1, 2)
    first.close()
    second.close()
