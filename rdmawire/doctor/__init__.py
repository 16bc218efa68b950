"""The doctor: why RDMA does not work or is slow, by a host, a scenario or a capture.

::

    from rdmawire.doctor import examine

    for finding in examine("two-sockets").findings:
        print(*finding.lines(), sep="; ")
"""

from rdmawire.doctor.capture import CAPTURE_CHECKS, examine_capture
from rdmawire.doctor.examine import CHECKS, Examination, examine
from rdmawire.doctor.finding import Check, Finding, Severity, Subject
from rdmawire.doctor.host import HOST_CHECKS, LiveFacts, examine_host, read_live
from rdmawire.doctor.scenario import SCENARIO_CHECKS, examine_scenario

__all__ = [
    "CAPTURE_CHECKS",
    "CHECKS",
    "HOST_CHECKS",
    "SCENARIO_CHECKS",
    "Check",
    "Examination",
    "Finding",
    "LiveFacts",
    "Severity",
    "Subject",
    "examine",
    "examine_capture",
    "examine_host",
    "examine_scenario",
    "read_live",
]
