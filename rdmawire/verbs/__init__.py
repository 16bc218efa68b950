"""Objects that every RDMA transport has: work requests, completions, queues, attributes, events."""
