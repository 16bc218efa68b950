"""The edit that is measured: every frame gets other addresses, and other PSNs."""

MACS = {
    "00:00:00:00:00:01": "02:00:00:00:00:07",
    "00:00:00:00:00:02": "02:00:00:00:00:08",
}
ADDRESSES = {"10.0.0.1": "192.168.7.1", "10.0.0.2": "192.168.7.2"}
QPNS = {17: 0x1234}
PSN = 100
