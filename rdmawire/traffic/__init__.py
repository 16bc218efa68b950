"""Test traffic: scenarios, generators, and captures edited."""
