"""Fuzz RDMA state machines and parsers."""
