# ruff: noqa: INP001 (a script beside the chart that it writes)
"""The tables of Grafana panels and Prometheus alerts, and the files that the chart carries made from them.

`make generate` writes them; tests/charts holds the files to the tables, and every expression to metrics that exist.
"""

import json
import pathlib
from typing import Any, NamedTuple

import yaml

FOLDER = pathlib.Path(__file__).parent / "trainmaster" / "files"

_JOB = 'namespace=~"$namespace",job="$job"'


class Panel(NamedTuple):
    """One panel: what it shows, of which expression, in which of Grafana's units."""

    title: str
    expression: str
    unit: str
    legend: str
    kind: str = "timeseries"


class Alert(NamedTuple):
    """One alert: its expression, how long it must hold, how grave it is, and what to do, in a sentence."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str


FLEET = (
    Panel("Jobs by phase", "max by (phase) (trainmaster_jobs)", "short", "{{phase}}", "stat"),
    Panel("Leader", "sum(trainmaster_leader)", "short", "operators that lead", "stat"),
    Panel(
        "Goodput of running jobs",
        'sum(max by (namespace, job) (trainmaster_job_goodput_seconds{account="training"}))'
        " / sum(max by (namespace, job, account) (trainmaster_job_goodput_seconds))",
        "percentunit",
        "goodput",
    ),
    Panel(
        "Failures by class, an hour", "sum by (class) (increase(trainmaster_failures_total[1h]))", "short", "{{class}}"
    ),
    Panel("Workers", "sum by (state) (max by (namespace, job, state) (trainmaster_job_workers))", "short", "{{state}}"),
    Panel("Jobs that wait for a look", "max(trainmaster_queue_depth)", "short", "jobs"),
    Panel(
        "Looks, 99 of 100",
        "histogram_quantile(0.99, sum by (le) (rate(trainmaster_reconcile_duration_seconds_bucket[5m])))",
        "s",
        "seconds",
    ),
    Panel(
        "Requests to the API server",
        "sum by (verb, code) (rate(trainmaster_api_requests_total[5m]))",
        "reqps",
        "{{verb}} {{code}}",
    ),
    Panel("Heartbeats", "sum by (code) (rate(trainmaster_heartbeats_total[5m]))", "reqps", "{{code}}"),
    Panel(
        "Memory of the operator",
        "process_resident_memory_bytes and on (instance) trainmaster_leader",
        "bytes",
        "{{instance}}",
    ),
)
JOB = (
    Panel("Phase", f"max by (phase) (trainmaster_job_phase{{{_JOB}}})", "short", "{{phase}}", "stat"),
    Panel(
        "Progress",
        f"max(trainmaster_job_step{{{_JOB}}}) / max(trainmaster_job_total_steps{{{_JOB}}})",
        "percentunit",
        "done",
        "stat",
    ),
    Panel("Still to go", f"max(trainmaster_job_eta_seconds{{{_JOB}}})", "s", "ETA", "stat"),
    Panel("Restarts", f"max(trainmaster_job_restarts_total{{{_JOB}}})", "short", "restarts", "stat"),
    Panel("Loss", f"max(trainmaster_job_loss{{{_JOB}}})", "short", "loss"),
    Panel("Samples per second", f"max(trainmaster_job_samples_per_second{{{_JOB}}})", "short", "samples/s"),
    Panel(
        "Where the time went",
        f"max by (account) (trainmaster_job_goodput_seconds{{{_JOB}}})",
        "s",
        "{{account}}",
    ),
    Panel(
        "Seconds lost, by class of failure",
        f"max by (class) (trainmaster_job_lost_seconds{{{_JOB}}})",
        "s",
        "{{class}}",
    ),
    Panel(
        "Age of the newest checkpoint",
        f"time() - max(trainmaster_job_checkpoint_timestamp_seconds{{{_JOB}}})",
        "s",
        "age",
    ),
    Panel("Workers", f"max by (state) (trainmaster_job_workers{{{_JOB}}})", "short", "{{state}}"),
    Panel("Waiting for data", f"max(trainmaster_job_data_wait_ratio{{{_JOB}}})", "percentunit", "share"),
    Panel("Rank that the others wait for", f"max(trainmaster_job_straggler_rank{{{_JOB}}})", "short", "rank"),
)
_RUNNING = 'max by (namespace, job) (trainmaster_job_phase{phase="Running"}) == 1'
ALERTS = (
    Alert(
        "TrainmasterNoLeader",
        "absent(trainmaster_leader == 1)",
        "1m",
        "critical",
        "No operator leads: jobs train on, but nothing is started again. Look at the operator's pods and its Lease.",
    ),
    Alert(
        "TrainmasterJobFailed",
        'max by (namespace, job) (trainmaster_job_phase{phase="Failed"}) == 1',
        "0m",
        "warning",
        "The job has failed: `kubectl describe tj` tells why.",
    ),
    Alert(
        "TrainmasterJobStuck",
        'max by (namespace, job) (trainmaster_job_phase{phase=~"Pending|Restarting|Resizing"}) == 1',
        "15m",
        "warning",
        "The job waits for its pods: `kubectl describe tj` tells for which, and what is in their way.",
    ),
    Alert(
        "TrainmasterNoStep",
        f"{_RUNNING} and max by (namespace, job) (changes(trainmaster_job_step[15m])) == 0",
        "15m",
        "warning",
        "The job is running and has made no step for a quarter of an hour.",
    ),
    Alert(
        "TrainmasterLowGoodput",
        f'{_RUNNING} and max by (namespace, job) (trainmaster_job_goodput_seconds{{account="training"}})'
        " / sum by (namespace, job) (max by (namespace, job, account) (trainmaster_job_goodput_seconds)) < 0.8",
        "1h",
        "warning",
        "Less than 80 % of the job's time was training: `trainmaster explain` tells where it went.",
    ),
    Alert(
        "TrainmasterRestarts",
        "max by (namespace, job) (increase(trainmaster_job_restarts_total[1h])) > 3",
        "0m",
        "warning",
        "The job has started again more than three times within an hour.",
    ),
    Alert(
        "TrainmasterOldCheckpoint",
        f"{_RUNNING} and time() - max by (namespace, job) (trainmaster_job_checkpoint_timestamp_seconds) > 4 * 3600",
        "15m",
        "warning",
        "The newest checkpoint is older than four hours: lower spec.checkpoint.everySteps, or look at the storage.",
    ),
    Alert(
        "TrainmasterStaleWatch",
        "max(trainmaster_watch_age_seconds) > 180",
        "3m",
        "warning",
        "The operator hears nothing from the API server.",
    ),
    Alert(
        "TrainmasterErrors",
        "sum by (reason) (rate(trainmaster_reconcile_errors_total[10m])) > 0.1",
        "10m",
        "warning",
        "Looks at jobs end with errors: the operator's log has them.",
    ),
)
_WHOSE = "{{ $labels.namespace }}/{{ $labels.job }}: "  # as Prometheus fills it in
_VARIABLES = (
    ("namespace", "label_values(trainmaster_job_phase, namespace)"),
    ("job", 'label_values(trainmaster_job_phase{namespace=~"$namespace"}, job)'),
)


def dashboard(
    title: str, uid: str, panels: tuple[Panel, ...], variables: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    """Return a dashboard as Grafana imports it: three panels in a row."""
    return {
        "title": title,
        "uid": uid,
        "tags": ["trainmaster"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), *(_variable(name, query) for name, query in variables)]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {"name": name, "type": "query", "datasource": source, "query": query, "refresh": 2, "sort": 1}


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": source,
        "gridPos": {"h": 8, "w": 8, "x": number % 3 * 8, "y": number // 3 * 8},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [{"refId": "A", "datasource": source, "expr": panel.expression, "legendFormat": panel.legend}],
    }


def rules() -> dict[str, Any]:
    """Return the alerts as a file of Prometheus' rules."""
    alerts = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasts,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": f"{_WHOSE if 'namespace, job' in alert.expression else ''}{alert.summary}"},
        }
        for alert in ALERTS
    ]
    return {"groups": [{"name": "trainmaster", "rules": alerts}]}


def files() -> dict[str, str]:
    """Return the text of each file, by its name."""
    boards = {
        "trainmaster-fleet.json": dashboard("Trainmaster: fleet", "trainmaster-fleet", FLEET, ()),
        "trainmaster-job.json": dashboard("Trainmaster: job", "trainmaster-job", JOB, _VARIABLES),
    }
    texts = {name: json.dumps(board, indent=1) + "\n" for name, board in boards.items()}
    return {**texts, "alerts.yaml": yaml.safe_dump(rules(), sort_keys=False, width=110)}


def write() -> None:
    """Write the files anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
