"""Unreliable connections and datagrams: nothing is invented, nothing is mixed up."""

from tests.effort import searching
from tests.stateful.unreliable import Unreliable

Unreliable.TestCase.settings = searching(20)
TestUnreliable = Unreliable.TestCase
