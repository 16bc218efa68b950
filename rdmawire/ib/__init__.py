"""The software RNIC for IB transport: sans-I/O, time as an argument."""
