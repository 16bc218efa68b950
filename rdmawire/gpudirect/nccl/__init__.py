"""Collective operations as NCCL does them: algorithms, protocols, and its transport over RDMA."""
