"""What `rdmawire fuzz run` prints of a campaign: findings as they come, at the end a summary."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rdmawire.cli.fuzz.replay import violation_text
from rdmawire.terminal import escape, plural, shorten

if TYPE_CHECKING:
    from rdmawire.cli.progress import StatusLine
    from rdmawire.fuzz.campaign import Campaign, Progress
    from rdmawire.fuzz.finding import Finding

_MAX_VALUE: Final = 200
"""Characters of an option's value that are repeated."""


class CampaignReport:
    """Prints what a campaign does: in text as it comes, as JSON at the end."""

    def __init__(self, campaign: "Campaign", folder: Path, *, as_json: bool) -> None:
        self._campaign = campaign
        self._folder = folder
        self._as_json = as_json
        self._has_begun = False

    def begin(self) -> None:
        """Print what is fuzzed, and what a campaign that goes on has found before."""
        self._has_begun = True
        if self._as_json:
            return
        campaign = self._campaign
        where = f"findings in {escape(str(self._folder))}"
        click.echo(f"{_words(dict(campaign.spec))}; seed {campaign.seed}; {where}")
        if campaign.done:
            found = plural(len(campaign.findings), "finding")
            click.echo(f"goes on after {plural(campaign.done, 'case')} with {found}")
        for one in campaign.findings:
            click.echo(self._text(one))

    def tell(self, finding: "Finding", line: "StatusLine[Progress]") -> None:
        """Print a finding; the line of progress is removed for that."""
        if not self._as_json:
            with line.paused():
                click.echo(self._text(finding))

    def end(self) -> None:
        """Print the summary, if the campaign has begun."""
        if not self._has_begun:
            return
        progress = self._campaign.progress
        if self._as_json:
            click.echo(json.dumps(self._values(), indent=1))
            return
        before = "in all " if progress.earlier else ""
        cases = "case" if progress.runs == 1 else "cases"
        click.echo(f"{before}{progress.runs:,} {cases}, {progress_text(progress)}")

    def _values(self) -> dict[str, Any]:
        """Return the campaign as JSON values."""
        campaign, progress = self._campaign, self._campaign.progress
        return {
            "target": dict(campaign.spec),
            "seed": campaign.seed,
            "runs": progress.runs,
            "earlier_runs": progress.earlier,
            "packets": progress.executed,
            "behaviours": progress.reached,
            "seconds": round(progress.seconds, 3),
            "findings": [self._object(one) for one in campaign.findings],
        }

    def _object(self, finding: "Finding") -> dict[str, Any]:
        shown = finding.violation._asdict()
        return {"folder": str(self._folder / finding.name), **shown, "inputs": finding.inputs}

    def _text(self, finding: "Finding") -> str:
        name = escape(str(self._folder / finding.name))
        return f"{name} ({plural(finding.inputs, 'input')})\n{violation_text(finding.violation)}"


def progress_text(progress: "Progress") -> str:
    """Write how far a campaign is."""
    rate = f"{progress.rate:,.0f} packets/s"
    reached = f"{plural(progress.reached, 'behaviour')}, " if progress.reached else ""
    found = plural(progress.findings, "finding")
    packets = "1 packet" if progress.executed == 1 else f"{progress.executed:,} packets"
    return f"{packets}, {rate}, {reached}{found}, {progress.seconds:.0f} s"


def _words(spec: dict[str, Any]) -> str:
    """Write what is fuzzed."""
    more = ", ".join(f"{name} {_value(value)}" for name, value in spec.items() if name != "kind")
    return f"fuzzing {spec['kind']}" + (f" ({more})" if more else "")


def _value(value: Any) -> str:
    return shorten(escape(f"{value:g}" if isinstance(value, float) else str(value)), _MAX_VALUE)
