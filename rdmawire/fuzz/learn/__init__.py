"""Active automata learning: the state machine of a target, inferred from its answers."""
