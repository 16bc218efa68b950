"""Capture files: records read from and written to pcap and pcapng."""
