"""Fit the constants of the model of costs to measured times of a host.

The sum of the squares of log(model / measured) is minimised (Levenberg-Marquardt), so that a small
time counts as much as a large one. Times are ns, sizes bytes.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from math import exp, inf, isfinite, log, sqrt
from typing import Any, Final, NamedTuple

import numpy as np

from rdmawire.errors import TopologyError
from rdmawire.terminal import closest_names, quote
from rdmawire.topology.cost import (
    H200_COSTS,
    CopyKind,
    Costs,
    copy_time,
    read_time,
    write_time,
)
from rdmawire.topology.machine import Device, Machine
from rdmawire.topology.registration import PAGE_2M, RegisteredKind, registration
from rdmawire.topology.route import Route, memory_route, peer_route

MAX_MEASUREMENTS: Final = 10_000
MAX_MEASURED: Final = 1 << 50
"""Bytes of one measurement."""


class Measurement(NamedTuple):
    """A measured time (ns) of ``size`` bytes by a path of :data:`MEASURED`.

    ``source`` and ``target`` are names of devices, by default the first GPU and the second one;
    the target of a write or a read may be host memory: ``memory0``.
    """

    path: str
    size: int
    time: float
    source: str = ""
    target: str = ""


def _ends(machine: Machine, one: Measurement) -> tuple[Device, Device]:
    names = [gpu.name for gpu in machine.gpus]
    if not (one.source or names):
        raise TopologyError(f"{machine.name} has no GPU: name the source of {one.path}")
    source = machine.device(one.source or names[0])
    others = [name for name in names if name != source.name]
    return source, machine.device(one.target or next(iter(others), source.name))


def _copy(kind: CopyKind, machine: Machine, one: Measurement, costs: Costs) -> float:
    source, target = _ends(machine, one)
    between = kind in (CopyKind.PEER, CopyKind.BOUNCE, CopyKind.BOUNCE_PAGEABLE)
    return copy_time(machine, kind, one.size, source, target if between else None, costs=costs)


def _access_route(machine: Machine, one: Measurement) -> Route:
    node = one.target.removeprefix("memory")
    if one.target.startswith("memory") and node.isdecimal():
        known = [number.number for number in machine.nodes]
        if int(node) not in known:
            raise TopologyError(f"{one.target}: NUMA nodes are {', '.join(map(str, known))}")
        return memory_route(machine, _ends(machine, one._replace(target=""))[0], int(node))
    return peer_route(machine, *_ends(machine, one))


def _write(machine: Machine, one: Measurement, costs: Costs) -> float:
    return write_time(machine, _access_route(machine, one), one.size, costs)


def _read(machine: Machine, one: Measurement, costs: Costs) -> float:
    return read_time(machine, _access_route(machine, one), one.size, costs)


def _register(
    kind: RegisteredKind, page: int | None, _: Machine, one: Measurement, costs: Costs
) -> float:
    return registration(kind, one.size, page_size=page, costs=costs).time


def _deregister(
    kind: RegisteredKind, page: int | None, _: Machine, one: Measurement, costs: Costs
) -> float:
    return registration(kind, one.size, page_size=page, costs=costs).dereg_time


_Model = Callable[[Machine, Measurement, Costs], float]
_PINNED: Final = {
    "host": (RegisteredKind.HOST, None),
    "host-2MiB": (RegisteredKind.HOST, PAGE_2M),
    "peermem": (RegisteredKind.PEERMEM, None),
    "dmabuf": (RegisteredKind.DMABUF, None),
}

MEASURED: Final[Mapping[str, _Model]] = {
    "pinned": partial(_copy, CopyKind.PINNED),
    "pinned-sync": partial(_copy, CopyKind.PINNED_AND_SYNC),
    "pageable": partial(_copy, CopyKind.PAGEABLE),
    "device": partial(_copy, CopyKind.DEVICE),
    "peer": partial(_copy, CopyKind.PEER),
    "bounce": partial(_copy, CopyKind.BOUNCE),
    "bounce-pageable": partial(_copy, CopyKind.BOUNCE_PAGEABLE),
    "write": _write,
    "read": _read,
    **{f"register-{name}": partial(_register, *how) for name, how in _PINNED.items()},
    **{f"deregister-{name}": partial(_deregister, *how) for name, how in _PINNED.items()},
}
"""What the model says of a measurement, by its path: copies of :class:`CopyKind` that software
starts, accesses of devices, and registrations."""


# Measurements as text.

_TIMES: Final = {"time_ns": 1.0, "time_us": 1e3, "time_ms": 1e6}
_KEYS: Final = ("path", "size", *_TIMES, "from", "to")


def parse_measurements(text: str, source: str = "measurements") -> list[Measurement]:
    """Read measurements from CSV with a header, or from a JSON list of objects.

    Keys are ``path``, ``size``, one of ``time_ns``, ``time_us`` and ``time_ms``, and, if they
    matter, ``from`` and ``to``. Raises :class:`TopologyError` with the row of a mistake.
    """
    found = []
    for number, row in enumerate(_rows(text, source), 1):
        if number > MAX_MEASUREMENTS:
            raise TopologyError(f"{source}: more than {MAX_MEASUREMENTS} measurements")
        try:
            found.append(_measurement(row))
        except ValueError as error:
            raise TopologyError(f"{source}: measurement {number}: {error}") from None
    if not found:
        raise TopologyError(f"{source}: no measurement; expected the keys {', '.join(_KEYS)}")
    return found


def _rows(text: str, source: str) -> Iterator[Any]:
    if text.lstrip()[:1] not in ("[", "{"):
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        try:
            yield from csv.DictReader(lines, restkey="?")
        except csv.Error as error:
            raise TopologyError(f"{source}: no CSV: {error}") from None
        return
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"{source}: no JSON: {error}") from None
    yield from rows if isinstance(rows, list) else [rows]


def _measurement(row: Any) -> Measurement:
    if not isinstance(row, dict):
        raise ValueError(f"expected an object with the keys {', '.join(_KEYS)}")
    row = {str(key).strip(): str(value or "").strip() for key, value in row.items()}
    for key in row:
        if key not in _KEYS:
            raise ValueError(f"{quote(key)}: keys are {', '.join(_KEYS)}")
    units = [name for name in _TIMES if row.get(name)]
    if len(units) != 1:
        raise ValueError(f"expected one of {', '.join(_TIMES)}")
    path = row.get("path", "")
    if path not in MEASURED:
        near = closest_names(path, MEASURED)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"path {quote(path)}: paths are {', '.join(MEASURED)}{meant}")
    time = _number(row[units[0]], units[0]) * _TIMES[units[0]]
    size = _number(row.get("size", ""), "size")
    if not (time > 0 and 1 <= size <= MAX_MEASURED and size == int(size)):
        raise ValueError("expected a time above 0, and a whole number of bytes from 1 on")
    return Measurement(path, int(size), time, row.get("from", ""), row.get("to", ""))


def _number(text: str, key: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise ValueError(f"{key} {quote(text)} is no number")
    return value


# The fit.


class Fitted(NamedTuple):
    """A constant that was fitted: its value before and after."""

    name: str
    before: float
    after: float


class Ratio(NamedTuple):
    """A measurement, and model / measured with the constants before and after."""

    measurement: Measurement
    before: float
    after: float


class Calibration(NamedTuple):
    """Fitted constants: all ``costs``, those that were ``fitted``, and the ``ratios``."""

    costs: Costs
    fitted: list[Fitted]
    ratios: list[Ratio]

    @property
    def spread(self) -> tuple[float, float]:
        """Typical factor between model and measurement, before and after: of squares of logs."""
        before = _spread([one.before for one in self.ratios])
        return before, _spread([one.after for one in self.ratios])

    @property
    def worst(self) -> tuple[float, float]:
        """Largest factor between model and measurement, before and after."""
        before = max(exp(abs(log(one.before))) for one in self.ratios)
        return before, max(exp(abs(log(one.after))) for one in self.ratios)


def _spread(ratios: Sequence[float]) -> float:
    return exp(sqrt(sum(log(one) ** 2 for one in ratios) / len(ratios)))


_HIGHEST: Final = {"link_efficiency": 1.0}
"""Constants that have a maximum."""
_PRIOR: Final = 1e-6
"""Weight of log(constant / its first value): of constants that no measurement decides."""
_LOWEST_EFFECT: Final = 1e-4
_STEP: Final = 1e-5
_MAX_STEPS: Final = 200
_CONVERGED: Final = 1e-12


def calibrate(
    machine: Machine,
    measurements: Sequence[Measurement],
    costs: Costs = H200_COSTS,
    names: Sequence[str] | None = None,
) -> Calibration:
    """Fit constants to measurements, beginning with ``costs``.

    ``names`` are those to fit, by default all that have an effect on the measurements. Raises
    :class:`TopologyError` for a name that is no constant or has no effect, and for devices that the
    host does not have.
    """
    fit = _Fit(machine, measurements, costs)
    chosen = fit.with_effect(names)
    after = fit.run(chosen)
    values = [Fitted(name, getattr(costs, name), getattr(after, name)) for name in chosen]
    both = zip(measurements, fit.ratios(costs), fit.ratios(after), strict=True)
    return Calibration(after, values, [Ratio(*row) for row in both])


class _Fit:
    """The measurements, and the model's times for them with any constants."""

    def __init__(self, machine: Machine, measurements: Sequence[Measurement], costs: Costs) -> None:
        self._machine = machine
        self._measurements = measurements
        self._costs = costs
        for one, ratio in zip(measurements, self.ratios(costs), strict=True):
            if not (ratio > 0 and isfinite(ratio)):
                what = f"{one.path} of {one.size} bytes"
                raise TopologyError(f"{what}: the model has no time; the rate of a link is unknown")

    def ratios(self, costs: Costs) -> list[float]:
        """Return model / measured of each measurement."""
        return [
            MEASURED[one.path](self._machine, one, costs) / one.time for one in self._measurements
        ]

    def with_effect(self, names: Sequence[str] | None) -> list[str]:
        """Return the constants to fit: those that change a time."""
        known = [field.name for field in fields(Costs)]
        for name in names or ():
            if name not in known:
                near = closest_names(name, known)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise TopologyError(f"no constant is called {quote(name)}{meant}")
        positive = [name for name in names or known if getattr(self._costs, name) > 0]
        effect = np.abs(self._slopes(self._costs, positive)).max(axis=0)
        chosen = [
            name for name, most in zip(positive, effect, strict=True) if most > _LOWEST_EFFECT
        ]
        if names is not None and (without := [one for one in names if one not in chosen]):
            raise TopologyError(f"the measurements do not depend on {', '.join(without)}")
        return chosen

    def _errors(self, costs: Costs) -> Any:
        return np.log(np.array(self.ratios(costs)))

    def _slopes(self, costs: Costs, names: Sequence[str]) -> Any:
        """Return the derivative of each log(ratio) by the log of each constant."""
        columns = []
        for name in names:
            value = getattr(costs, name)
            low, high = (
                self._errors(replace(costs, **{name: value * exp(step)}))
                for step in (-_STEP, _STEP)
            )
            columns.append((high - low) / (2 * _STEP))
        return np.array(columns).T.reshape(len(self._measurements), len(names))

    def _loss(self, costs: Costs, names: Sequence[str]) -> float:
        errors = self._errors(costs)
        moved = (log(getattr(costs, name) / getattr(self._costs, name)) for name in names)
        return float(errors @ errors) + _PRIOR * sum(one**2 for one in moved)

    def run(self, names: Sequence[str]) -> Costs:
        """Return the constants with the smallest loss."""
        costs, damping = self._costs, 1e-3
        loss = self._loss(costs, names)
        for _ in range(_MAX_STEPS):
            candidate = self._next(costs, names, damping)
            smaller = self._loss(candidate, names)
            if smaller < loss:
                done = loss - smaller < _CONVERGED * loss
                costs, loss, damping = candidate, smaller, damping / 5
                if done:
                    break
            elif damping > 1e9:
                break
            else:
                damping *= 5
        return costs

    def _next(self, costs: Costs, names: Sequence[str], damping: float) -> Costs:
        """Return the constants one step ahead: a Gauss-Newton step that damping makes smaller.

        A constant at its maximum that would be larger still stays there.
        """
        slopes, errors = self._slopes(costs, names), self._errors(costs)
        moved = np.array([log(getattr(costs, name) / getattr(self._costs, name)) for name in names])
        gradient = slopes.T @ errors + _PRIOR * moved
        free = np.array(
            [
                getattr(costs, name) < _HIGHEST.get(name, inf) or slope > 0
                for name, slope in zip(names, gradient, strict=True)
            ]
        )
        slopes = slopes * free
        square = slopes.T @ slopes + _PRIOR * np.eye(len(names))
        square += damping * np.diag(np.diag(square))
        step = np.clip(np.linalg.solve(square, -gradient * free), -1.0, 1.0)
        values = {
            name: min(getattr(costs, name) * exp(float(one)), _HIGHEST.get(name, inf))
            for name, one in zip(names, step, strict=True)
        }
        return replace(costs, **values)
