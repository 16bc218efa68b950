"""Fuzz every target for a while: ``python -m tools.fuzz [--minutes N] [--target NAME]``.

atheris guides the bytes by what code they reach; each target runs in a process of its own. A
finding is written to a file, and named with the command that repeats it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from tools.fuzz.seeds import SEEDS
from tools.fuzz.targets import TARGETS

_LONGEST = 8192


@click.command()
@click.option(
    "--minutes", default=10.0, show_default=True,
    help="Time for all targets together, in minutes.",
)  # fmt: skip
@click.option("--target", "names", multiple=True, type=click.Choice(list(TARGETS)))
@click.option("--repeat", type=click.Path(path_type=Path), help="Run one finding again.")
def fuzz(minutes: float, names: tuple[str, ...], repeat: Path | None) -> None:
    """Feed hostile bytes to everything that reads bytes."""
    if repeat is not None:
        _repeat(names, repeat)
        return
    chosen = names or tuple(TARGETS)
    findings = Path(tempfile.mkdtemp(prefix="rdmawire-fuzz-"))
    failed = [name for name in chosen if not _run(name, minutes * 60 / len(chosen), findings)]
    if failed:
        raise click.ClickException(f"findings in {', '.join(failed)}: see {findings}")
    click.echo(f"{', '.join(chosen)}: no findings")


def _repeat(names: tuple[str, ...], path: Path) -> None:
    """Run one target on the bytes of a finding; an exception shows that it is still a finding."""
    if len(names) != 1:
        raise click.UsageError("--repeat needs one --target: the target of the finding")
    TARGETS[names[0]](path.read_bytes())
    click.echo(f"{names[0]}: {path} is no longer a finding")


def _run(name: str, seconds: float, findings: Path) -> bool:
    """Fuzz one target in a process of its own; whether it found nothing."""
    with tempfile.TemporaryDirectory() as corpus:
        for i, data in enumerate(SEEDS[name]()):
            Path(corpus, f"{i:06}").write_bytes(data[:_LONGEST])
        command = [sys.executable, "-m", "tools.fuzz.worker", name, corpus]
        command += [f"-max_total_time={seconds:.0f}", f"-max_len={_LONGEST}", "-timeout=20"]
        command += ["-rss_limit_mb=4096", f"-artifact_prefix={findings}/{name}-"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    click.echo(f"{name}: {_last(done.stderr)}")
    if done.returncode:
        click.echo(done.stderr[-4000:])
        click.echo(f"repeat with: python -m tools.fuzz --target {name} --repeat FILE")
    return done.returncode == 0


def _last(log: str) -> str:
    """What libFuzzer says it has done."""
    lines = [line for line in log.splitlines() if line.startswith(("Done", "stat::", "#"))]
    return lines[-1] if lines else "libFuzzer printed no statistics"


if __name__ == "__main__":
    fuzz()
