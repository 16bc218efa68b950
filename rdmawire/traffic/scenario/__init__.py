"""Scenarios: hosts, memory, queue pairs, links, work, faults and expectations, written in YAML."""
