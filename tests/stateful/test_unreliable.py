"""Unreliable connections and datagrams: nothing is invented, nothing is mixed up."""

from tests.stateful.effort import searching
from tests.stateful.unreliable import Unreliable

Unreliable.TestCase.settings = searching(300)
TestUnreliable = Unreliable.TestCase
