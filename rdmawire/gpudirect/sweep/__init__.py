"""Sweeps: collectives and transfers with every combination of some settings, over processes.

::

    from rdmawire.fabric import Cable
    from rdmawire.gpudirect import CollectiveSpec
    from rdmawire.gpudirect.sweep import CollectiveJob, Sweep, combinations

    axes = {"hosts": [2, 4, 8], "size": [1 << 16, 1 << 20]}
    cable = Cable(latency=1000, rate=400_000_000_000)
    specs = [CollectiveSpec(**settings) for settings in combinations(axes)]
    sweep = Sweep([CollectiveJob(spec, cable, flows=True) for spec in specs])
    sweep.run(processes=2)
    durations = [row.results["duration_ns"] for row in sweep.rows]
"""

from typing import TYPE_CHECKING

from rdmawire.gpudirect.sweep.run import MAX_JOBS, Job, Sweep, SweepRow, Value, combinations
from rdmawire.lazy_names import lazy_names

if TYPE_CHECKING:
    from rdmawire.gpudirect.sweep.collective import CollectiveJob
    from rdmawire.gpudirect.sweep.transfer import TransferJob

__all__ = [
    "MAX_JOBS",
    "CollectiveJob",
    "Job",
    "Sweep",
    "SweepRow",
    "TransferJob",
    "Value",
    "combinations",
]

# Jobs of collectives need NumPy.
__getattr__ = lazy_names(__name__, {"collective": ("CollectiveJob",), "transfer": ("TransferJob",)})
