"""Where DCQCN comes to rest, by its authors' fluid model.

Y. Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, section 5.1:
equations that say how rates, targets, alpha and the queue move. Set to zero they have one
solution, at which all flows have the same rate (Y. Zhu et al., ECN or Delay, CoNEXT 2016,
theorem 1). Here is that solution. Rates are in packets a second, times in seconds.
"""

from dataclasses import dataclass
from math import pow as power
from typing import Final

from rdmawire.fabric import Marking
from rdmawire.ib.congestion import CNP_INTERVAL, DcqcnParameters

_NS: Final = 1e-9
_STEPS: Final = 60


@dataclass(frozen=True, slots=True)
class Fluid:
    """So many flows through one port of ``capacity`` bits a second, in frames of so many bytes.

    ``interval`` is the least time between two CNPs of a flow, in ns.
    """

    parameters: DcqcnParameters
    flows: int
    capacity: float
    frame: int
    interval: int = CNP_INTERVAL

    @property
    def share(self) -> float:
        """The rate of each flow at rest, in bits a second."""
        return self.capacity / self.flows

    def marked(self) -> float:
        """How many of the frames are marked at rest, 0.0 to 1.0."""
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._excess(middle) > 0 else (middle, high)
        return low

    def queue(self, marking: Marking) -> float:
        """Bytes that wait at rest; ``kmax`` where fewer would not be marked often enough."""
        filled = self.marked() / marking.pmax if marking.pmax else 1.0
        return marking.kmin + min(filled, 1.0) * (marking.kmax - marking.kmin)

    def _excess(self, marked: float) -> float:
        """How much more is cut than added, if so many frames are marked: grows with them.

        The model's equations for alpha, target and rate at rest, with both of these eliminated:
        ECN or Delay, equation 9.
        """
        known, bits = self.parameters, self.frame * 8
        rate = self.share / bits
        clear = 1 - marked
        interval = self.interval * _NS
        cut = 1 - power(clear, interval * rate)
        alpha = 1 - power(clear, known.alpha_timer * _NS * rate)
        periods = (known.byte_counter / self.frame, known.rate_timer * _NS * rate)
        steps = [_steps(clear, marked, period) for period in periods]
        later = [
            step * power(clear, known.fast_recovery * period)
            for step, period in zip(steps, periods, strict=True)
        ]
        raised = known.additive / bits * sum(steps) * sum(later) * rate
        return cut * cut * alpha - interval * interval * raised


def _steps(clear: float, marked: float, period: float) -> float:
    """Steps of recovery for each packet, where each so many without a mark make one."""
    survived = power(clear, period)
    return marked * survived / (1 - survived) if survived < 1 else 1 / period
