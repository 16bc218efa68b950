"""Scenarios: hosts, memory, queue pairs, links, work, faults and expectations, told in YAML."""
