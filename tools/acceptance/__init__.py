"""Acceptance runs: unmodified programs that use libibverbs, on devices of `rdmawire verbs`."""
