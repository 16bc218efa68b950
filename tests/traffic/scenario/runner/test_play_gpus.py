"""Memory of GPUs: every way to it, what is refused, and what its owner frees."""

from typing import Any

import pytest

from rdmawire.traffic.scenario.model.host import GpuPlan, HostPlan
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.types import Fill
from tests.traffic.scenario.scene import (
    COUNT,
    MARK,
    SINK,
    SOURCE,
    counts,
    exactly,
    expecting,
    failures,
    failures_of,
    holds,
    host,
    memory,
    scene,
    step,
    write,
)


def with_gpu(name: str, *memories: Any, model: str = "H200", bar1: int | None = None) -> HostPlan:
    return host(name, *memories, gpus=(GpuPlan(name="gpu0", mark=MARK, model=model, bar1=bar1),))


def gpu_pair(via: str, **more: Any) -> tuple[HostPlan, HostPlan]:
    return (
        with_gpu("client", memory("source", content=COUNT, gpu="gpu0", via=via)),
        with_gpu("server", memory("sink", gpu="gpu0", via=via, **more)),
    )


@pytest.mark.parametrize(
    ("via", "path", "copies"),
    [
        ("peermem", "gpu_direct", 0),
        ("peermem-legacy", "gpu_direct", 0),
        ("dmabuf", "gpu_direct", 0),
        ("bounce", "bounce", 8),
    ],
)
def test_gpu_to_gpu_by_every_way(via: str, path: str, copies: int) -> None:
    outcome = play(
        expecting(
            scene(write(), hosts=gpu_pair(via)),
            holds(SINK, SOURCE),
            counts(f"client.{path}_bytes", exactly(8192)),
            counts(f"server.{path}_bytes", exactly(8192)),
            counts(f"server.{path}_copies", exactly(copies)),
            counts("server.host_bytes", exactly(0)),
        )
    )
    assert failures_of(outcome) == []
    assert set(outcome.summary.paths) == {path}


def test_kernels_see_what_was_posted_once_all_is_over() -> None:
    hosts = (
        host("client", memory("source", content=COUNT)),
        with_gpu("server", memory("sink", gpu="gpu0"), model="T4"),
    )
    assert failures(scene(write(), hosts=hosts), holds(SINK, SOURCE)) == []


def test_a_registration_meets_its_refusal_or_fails() -> None:
    def found(size: int, refused: str | None) -> list[str]:
        huge = memory("huge", size, gpu="gpu0", refused=refused)
        return failures(scene(hosts=(with_gpu("client", huge, bar1=64 << 20), host("server"))))

    assert found(128 << 20, "EFAULT") == []
    assert found(1 << 20, None) == []
    (text,) = found(128 << 20, None)
    assert text.startswith(
        "registration of client.huge: expected no refusal, found EFAULT (Bad address: unmapped"
    )
    assert found(128 << 20, "ENOMEM") == [text.replace("no refusal", "ENOMEM")]
    assert found(1 << 20, "EFAULT") == [
        "registration of client.huge: expected EFAULT, found no refusal"
    ]


@pytest.mark.parametrize(
    ("via", "status"), [("peermem", "SUCCESS"), ("peermem-legacy", "REM_ACCESS_ERR")]
)
def test_what_the_owner_frees_goes_on_or_not(via: str, status: str) -> None:
    steps = (step("free", None, values={"what": SINK}), write(status=status, at=1_000))
    assert failures(scene(*steps, hosts=gpu_pair(via))) == []
    freed_twice = (steps[0], step("free", None, values={"what": SINK}, refused="EINVAL"))
    assert failures(scene(*freed_twice, hosts=gpu_pair(via))) == []
    assert failures(scene(steps[0], hosts=gpu_pair(via)), holds(SINK, fill=Fill.ZEROS)) == [
        (
            "memory server.sink: expected zeros, found no memory: "
            "illegal GPU address: 8192 bytes at 0x700000000000"
        )
    ]


def test_host_memory_is_not_freed_as_a_gpus() -> None:
    steps = (step("free", None, values={"what": SINK}),)
    assert failures(scene(*steps)) == [
        "free: expected no refusal, found EINVAL (server.sink is no GPU's)"
    ]


def test_memory_that_a_gpu_has_no_room_for_is_a_failure() -> None:
    vast = memory("vast", 1 << 40, gpu="gpu0")
    assert failures(scene(hosts=(with_gpu("client", vast), host("server")))) == [
        (
            "memory client.vast: expected to be there, "
            "found ENOMEM (no 1099511627776 bytes of GPU memory left)"
        )
    ]


@pytest.mark.parametrize(
    ("driver", "via", "errno"),
    [
        ("peermem", "peermem", "EFAULT"),
        ("peermem", "peermem-legacy", "EFAULT"),
        ("dmabuf", "dmabuf", "EOPNOTSUPP"),
    ],
)
def test_memory_of_a_gpu_needs_its_driver(driver: str, via: str, errno: str) -> None:
    client, server = gpu_pair(via)
    outcome = play(scene(write(), hosts=(client, server.model_copy(update={driver: False}))))
    (refused,) = [one for one in failures_of(outcome) if "registration of server.sink" in one]
    assert f"found {errno} (" in refused
    other = "dmabuf" if driver == "peermem" else "peermem"
    both = gpu_pair(other)
    assert (
        failures_of(
            play(scene(write(), hosts=(both[0], both[1].model_copy(update={driver: False}))))
        )
        == []
    )


def test_memory_beyond_the_limit_is_refused() -> None:
    small = host("server", memory("sink")).model_copy(update={"locked_memory": 4096})
    outcome = play(scene(write(), hosts=(host("client", memory("source", content=COUNT)), small)))
    assert any("ENOMEM" in one and "ulimit -l" in one for one in failures_of(outcome))
    enough = small.model_copy(update={"locked_memory": 8192})
    outcome = play(scene(write(), hosts=(host("client", memory("source", content=COUNT)), enough)))
    assert failures_of(outcome) == []
