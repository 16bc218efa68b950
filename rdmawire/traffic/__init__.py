"""Test traffic.

- :mod:`rdmawire.traffic.scenario`: scenarios in YAML, run and checked
- :mod:`rdmawire.traffic.generate`: captures of any number of messages, from a specification
- :mod:`rdmawire.traffic.edit`: captures with fields, headers and checksums changed
"""
