"""Golden captures: conversations of the software RNIC that are true as a whole."""
