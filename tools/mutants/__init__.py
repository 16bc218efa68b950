"""Mutants: small faults put into the code, to see whether its tests find them."""
