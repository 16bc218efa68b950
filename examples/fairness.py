"""How fairly something is shared."""

from collections.abc import Sequence


def jain(shares: Sequence[float]) -> float:
    """1.0 where all are equal, 1/n where one of n has everything, or nobody anything.

    R. Jain et al., A Quantitative Measure of Fairness and Discrimination, DEC-TR-301, 1984.
    """
    most = max(shares)
    if not most:
        return 1 / len(shares)
    parts = [share / most for share in shares]
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts))
