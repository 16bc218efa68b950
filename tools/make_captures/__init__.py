"""Generators of the captures under captures/."""
