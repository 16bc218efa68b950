"""PSNs over time, thinned out as they grow, for a picture."""

import numpy as np

from rdmawire.stats.circle import Numbers

_MOST = 1 << 17
"""Points at most; where there are more, every second one is let go."""


class Points:
    """Every so many requests: when, which PSN, of which flow."""

    def __init__(self) -> None:
        self._stride = 1
        self._skipped = 0
        self.times = self.psns = self.flows = np.empty(0, np.int64)

    def add(self, times: Numbers, psns: Numbers, flows: Numbers) -> None:
        """Keep some of these requests, which are in the order of the capture."""
        chosen = slice(-self._skipped % self._stride, None, self._stride)
        self._skipped += len(times)
        self.times = np.append(self.times, times[chosen])
        self.psns = np.append(self.psns, psns[chosen])
        self.flows = np.append(self.flows, flows[chosen])
        while len(self.times) > _MOST:
            self._stride *= 2
            self.times, self.psns, self.flows = self.times[::2], self.psns[::2], self.flows[::2]
