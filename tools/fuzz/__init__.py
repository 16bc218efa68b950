"""Hostile bytes for everything that reads bytes, guided by coverage."""
