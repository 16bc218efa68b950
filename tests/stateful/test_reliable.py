"""Reliable connections and XRC: whatever the link does, all that is asked is done, once."""

from tests.effort import searching
from tests.stateful.reliable import Reliable

Reliable.TestCase.settings = searching(60)
TestReliable = Reliable.TestCase
