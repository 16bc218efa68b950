"""The wire tables as layers of other tools: Scapy and Construct."""
