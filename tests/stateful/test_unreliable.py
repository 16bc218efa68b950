"""Unreliable connections and datagrams: nothing is invented, nothing is mixed up."""

from tests.stateful.effort import searching
from tests.stateful.unreliable import Unreliable

Unreliable.TestCase.settings = searching(130)
TestUnreliable = Unreliable.TestCase
