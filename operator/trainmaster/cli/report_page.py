"""Make the page of `trainmaster report`: one HTML file that loads nothing and runs no script."""

from collections.abc import Sequence
from datetime import datetime

import yaml

from trainmaster.api.status import RestartRecord
from trainmaster.cli import differences, report_charts
from trainmaster.cli.differences import Row
from trainmaster.cli.markup import Markup, element, several
from trainmaster.cli.subjects import Subject
from trainmaster.core.failures import classes
from trainmaster.core.report import conditions
from trainmaster.core.report.story import story

BEGINNING = "<!doctype html><!-- made by trainmaster report -->"
_MOST_FIGURES = 16
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # should any text get through, it still could do nothing
_STYLE = """
:root{color-scheme:light dark;--fore:#1f2328;--back:#fff;--soft:#f3f4f6;--line:#d0d7de;--dim:#57606a}
@media(prefers-color-scheme:dark){:root{--fore:#e6edf3;--back:#0d1117;--soft:#161b22;--line:#30363d;--dim:#9198a1}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fore);background:var(--back);margin:0 auto;max-width:900px}
body{padding:20px;overflow-wrap:anywhere}
h1{font-size:22px;margin:0}h2{font-size:17px;margin:28px 0 8px;border-bottom:1px solid var(--line)}
h3{font-size:15px;margin:16px 0 4px}p{margin:4px 0}svg{width:100%;height:auto;display:block}
.dim,svg text{color:var(--dim);fill:var(--dim);font-size:12px}.grid{stroke:var(--line)}
.restart{stroke:#be123c;stroke-dasharray:4 3}.attempt{fill:#2166c2;stroke:var(--back)}.lost{fill:#be123c}
table{border-collapse:collapse;width:100%;font-size:13px;display:block;overflow-x:auto}
td,th{border:1px solid var(--line);padding:3px 8px;text-align:left;vertical-align:top}th{background:var(--soft)}
pre,details{background:var(--soft);padding:8px;border-radius:4px;font-size:13px;margin:4px 0}
details th{white-space:nowrap}pre{white-space:pre-wrap}.legend span{margin-right:14px;font-size:13px;white-space:nowrap}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}
"""


def page(subjects: Sequence[Subject], now: datetime) -> str:
    """Return the whole file."""
    names = ", ".join(subject.name for subject in subjects)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width"),
        element("title", f"{names}: Trainmaster"),
        element("style", Markup(_STYLE)),
    )
    parts: list[str] = [
        element("h1", names),
        element("p", f"Trainmaster, as of {now:%Y-%m-%d %H:%M:%S}Z", class_="dim"),
        *_curves(subjects),
        *_compared(subjects),
        *(several(_training(subject)) for subject in subjects),
    ]
    return f"{BEGINNING}\n{element('html', head, element('body', several(parts)), lang='en')}\n"


def _curves(subjects: Sequence[Subject]) -> list[str]:
    figures = list(dict.fromkeys(name for subject in subjects for name in subject.curves.by_name))
    if not figures:
        return [element("h2", "Curves"), element("p", "Nothing has told a loss or another figure.")]
    parts: list[str] = [element("h2", "Curves")]
    if len(subjects) > 1:
        legend = [
            element("span", element("i", "", style=f"background:{report_charts.colour(number)}"), subject.name)
            for number, subject in enumerate(subjects)
        ]
        parts.append(element("p", legend, class_="legend"))
    for name in figures[:_MOST_FIGURES]:
        parts += [element("h3", name), report_charts.figure(name, subjects)]
    if any(subject.status.restarts for subject in subjects):
        parts.append(element("p", "Upright lines are restarts.", class_="dim"))
    return parts


def _compared(subjects: Sequence[Subject]) -> list[str]:
    names = [subject.name for subject in subjects]
    parts: list[str] = [element("h2", "Figures"), _table(names, differences.of_figures(subjects))]
    if len(subjects) > 1:
        differing = differences.of_specs(subjects)
        parts.append(element("h2", "What differs between them"))
        parts.append(_table(names, differing) if differing else element("p", "Their specs are equal."))
    return parts


def _table(names: Sequence[str], rows: Sequence[Row]) -> Markup:
    head = element("tr", element("th", ""), [element("th", name) for name in names])
    body = [element("tr", element("th", name), [element("td", cell) for cell in cells]) for name, cells in rows]
    return element("table", head, body)


def _training(subject: Subject) -> list[str]:
    """Return what is said of one training alone: its story, its restarts, its time and its spec."""
    status = subject.status
    told = [line for line in story(status, subject.name, subject.phase) if not line.startswith(" ")]
    parts: list[str] = [element("h2", f"{subject.name}: {subject.phase}"), *(element("p", line) for line in told)]
    if timeline := report_charts.attempts(status):
        parts += [element("h3", "Attempts over time"), timeline]
    if status.goodput and status.goodput.total > 0:
        parts += [element("h3", f"Goodput {status.goodput.share}"), report_charts.goodput(status.goodput)]
    if status.restarts:
        parts += [element("h3", "Restarts"), *(_restart(record) for record in status.restarts)]
    parts += [element("p", f"{one.type}: {one.message or one.reason}") for one in conditions.in_the_way(status)]
    if subject.spec:
        job = str(yaml.safe_dump(differences.without_secrets(subject.spec), sort_keys=False, allow_unicode=True))
        parts.append(element("details", element("summary", "The job"), _lines(job)))
    if subject.curves.torn:
        parts.append(element("p", f"{subject.curves.torn} lines of metrics.jsonl could not be read.", class_="dim"))
    return parts


def _restart(record: RestartRecord) -> Markup:
    head = f"{record.time:%H:%M:%S}Z  {record.replica or 'somebody'} at step {record.step}: {record.failure_class}"
    cost = "" if record.seconds_lost is None else f", {record.seconds_lost:.3g} s lost"
    lost = "" if record.steps_lost is None else f", {record.steps_lost} steps trained again"
    kind = classes.BY_NAME.get(record.failure_class)
    rows: list[Row] = [
        ("ended by", [record.exit or "unknown"]),
        ("node", [record.node or "-"]),
        ("evidence", [record.evidence or "none"]),
        ("means", [kind.means if kind else "unknown"]),
        ("decision", [f"{record.decision or 'none'}: {record.why}"]),
    ]
    body = element("table", [element("tr", element("th", name), element("td", cells[0])) for name, cells in rows])
    stacks = [_lines(record.stacks)] if record.stacks else []
    return element("details", element("summary", head + cost + lost), body, stacks)


def _lines(text: str) -> Markup:
    """Return a text of several lines, each of them made printable."""
    return element("pre", Markup("\n".join(element("span", line) for line in text.splitlines())))
