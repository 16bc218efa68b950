"""The machine that figures come from."""

import os
import platform
from pathlib import Path


def machine() -> str:
    """Its processors, and its Python."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} x {model}, {python}"
