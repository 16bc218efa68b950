"""Tests of rdmawire.capture."""
