"""How much something wants to be looked at; in a terminal, its colour."""

from enum import Enum


class Mood(Enum):
    """From nothing special to something wrong."""

    PLAIN = "plain"
    RDMA = "rdma"
    TROUBLE = "trouble"
    BAD = "bad"
