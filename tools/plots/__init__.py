"""Measured curves for the pages, from experiments in virtual time."""
