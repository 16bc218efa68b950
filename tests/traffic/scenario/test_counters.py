"""Every counter that a file may name is told."""

from rdmawire.traffic.scenario.counters import COUNTERS, Of
from rdmawire.traffic.scenario.model.network import SwitchPlan
from rdmawire.traffic.scenario.runner.play import play
from tests.traffic.scenario.scene import MARK, link, scene, write

SWITCHED = scene(
    write(),
    switches=(SwitchPlan(name="leaf", mark=MARK),),
    links=(link(ends=("client", "leaf")), link(ends=("leaf", "server"))),
)
SUBJECTS = {
    "client": Of.HOST,
    "server": Of.HOST,
    "client-leaf": Of.LINK,
    "leaf-server": Of.LINK,
    "leaf": Of.SWITCH,
    "leaf:client": Of.PORT,
    "leaf:server": Of.PORT,
}


def test_each_object_has_all_its_counters() -> None:
    counters = play(SWITCHED).counters
    assert set(counters) == {
        f"{name}.{counter}" for name, of in SUBJECTS.items() for counter in COUNTERS[of]
    }


def test_they_are_those_of_the_end() -> None:
    counters = play(SWITCHED).counters
    assert counters["client.bytes"] == counters["server.host_bytes"] == 8192
    assert counters["client-leaf.frames"] == counters["leaf-server.frames"] == 9
    assert counters["leaf.peak"] > 0
    assert counters["leaf:server.drops"] == 0
