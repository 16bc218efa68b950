"""Reliable connections and XRC: whatever the link does, all that is asked is done, once."""

from collections.abc import Callable
from typing import ClassVar

from tests.stateful.connection import extended
from tests.stateful.effort import searching
from tests.stateful.flow import Place
from tests.stateful.reliable import Reliable


class Three(Reliable):
    """Three hosts, each connected with both others, on one link."""

    hosts = 3
    joined = ((0, 1), (1, 2), (2, 0))


class Extended(Reliable):
    """XRC: a host that sends to two others, which name no receives of their own."""

    hosts = 3
    joined = ((0, 1), (0, 2))
    make: ClassVar[Callable[..., tuple[Place, Place]]] = staticmethod(extended)


Reliable.TestCase.settings = searching(150)
Three.TestCase.settings = searching(50)
Extended.TestCase.settings = searching(60)
TestTwoHosts = Reliable.TestCase
TestThreeHosts = Three.TestCase
TestExtended = Extended.TestCase
