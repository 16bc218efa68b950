"""Virtual time: whole nanoseconds from the beginning of a world; and rates, in bits a second."""


def us(number: float) -> int:
    """So many microseconds, in nanoseconds."""
    return round(number * 1_000)


def ms(number: float) -> int:
    """So many milliseconds, in nanoseconds."""
    return round(number * 1_000_000)


def seconds(number: float) -> int:
    """So many seconds, in nanoseconds."""
    return round(number * 1_000_000_000)


def gbps(number: float) -> int:
    """So many gigabits a second, in bits a second."""
    return round(number * 1_000_000_000)
