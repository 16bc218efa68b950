"""Experiments on fabrics: who sends how much through which switches, and what was measured."""
