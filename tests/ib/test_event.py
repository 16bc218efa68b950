"""Events: one class for each thing that happens, and a reason for each that does not."""

from dataclasses import FrozenInstanceError, fields
from typing import get_args

import pytest

from rdmawire.verbs.async_event import ABSENT, AsyncEvent, CompletionEvent, CQError, EventType

CLASSES = get_args(AsyncEvent)

# Which member of ibv_async_event's union each event fills, by the start of its name.
SUBJECTS = {"CQ": "cq", "SRQ": "srq", "PORT": "port", "PKEY": "port", "GID": "port"}


def test_each_type_of_event_has_one_class_or_a_reason_why_not() -> None:
    made = [event.TYPE for event in CLASSES]
    assert sorted([*made, *ABSENT]) == list(EventType)
    assert all(ABSENT.values())


@pytest.mark.parametrize("event", CLASSES, ids=lambda event: event.__name__)
def test_each_event_names_its_subject_by_number(event: type[CQError]) -> None:
    subject = SUBJECTS.get(event.TYPE.name.split("_")[0], "qp")
    assert [field.name for field in fields(event) if field.compare] == [subject]
    assert getattr(event(5), subject) == 5


@pytest.mark.parametrize("event", [*CLASSES, CompletionEvent], ids=lambda event: event.__name__)
def test_events_do_not_change(event: type[CQError]) -> None:
    one = event(1)
    assert one == event(1) != event(2)
    with pytest.raises(FrozenInstanceError):
        setattr(one, fields(one)[0].name, 2)
