"""Fabrics in virtual time: adapters joined by links, and the only place with a clock."""
