"""Write docs/monitoring.md from the tables of metrics, alerts and panels. `make generate` calls it."""

from pathlib import Path

from trainmaster.cluster.metrics.instruments import GAUGES, Instruments
from trainmaster.cluster.metrics.job_figures import FIGURES

from charts.monitoring import ALERTS, FLEET, JOB, Alert

PAGE = Path(__file__).parent / "monitoring.md"
_OURS = "trainmaster_"
_HEAD = """# Monitoring

Written by `make generate` from the tables in `operator/trainmaster/cluster/metrics/` and `charts/monitoring.py`.

Each operator serves `/metrics` on port 8083, the leader and the one that stands by alike; `trainmaster_leader` tells
which is which. With the Prometheus operator and Grafana's sidecar in the cluster:

    helm upgrade --install trainmaster charts/trainmaster -n trainmaster-system --reuse-values \\
      --set metrics.podMonitor.enabled=true --set metrics.prometheusRule.enabled=true \\
      --set metrics.dashboards.enabled=true --set metrics.podMonitor.labels.release=prometheus

Without them, scrape the pods with `honor_labels: true` (`namespace` and `job` are those of the TrainingJob) and import
`charts/trainmaster/files/*.json` and `alerts.yaml` by hand. `make test-prometheus` tries all of it with a real
Prometheus.

A running job has about 30 samples; one that is over is told for 15 minutes. Labels are words of fixed lists besides the
job's namespace and name. Both operators tell of each job, so queries take `max by (namespace, job)`. The figures are
those of `.status`, which follows a running job every ten seconds or so. A job of more than 16,000 characters has none.
The page needs no token: see [security](security.md) for who can read it.

"""


def monitoring_page() -> str:
    """Return the page."""
    own = {_told(family.name, family.type): family.documentation for family in Instruments().registry.collect()}
    ours = GAUGES | {name: text for name, text in own.items() if name.startswith(_OURS)}
    jobs = [
        f"| `{_told(one.name, 'counter' if one.counts else 'gauge')}` | {', '.join(one.labels)} | {one.help} |"
        for one in FIGURES
    ]
    return _HEAD + "\n".join(
        [
            "## Of each job",
            "",
            "Labels `namespace` and `job`, and those of the second column.",
            "",
            "| metric | labels | what |",
            "|---|---|---|",
            *jobs,
            "",
            "## Of the operator",
            "",
            "| metric | what |",
            "|---|---|",
            "| `trainmaster_jobs` | Jobs by phase, those that are over included. |",
            *(f"| `{name}` | {text} |" for name, text in sorted(ours.items())),
            "",
            "And `process_*` and `python_*`, as every Python program has them.",
            "",
            "## Alerts",
            "",
            "| alert | when | for | what to do |",
            "|---|---|---|---|",
            *map(_row, ALERTS),
            "",
            "## Dashboards",
            "",
            f"*Fleet*: {', '.join(panel.title for panel in FLEET)}.",
            "",
            f"*Job*: {', '.join(panel.title for panel in JOB)}.",
            "",
        ]
    )


def _told(name: str, kind: str) -> str:
    """Return the name as Prometheus knows it."""
    return f"{name}_total" if kind == "counter" else name


def _row(alert: Alert) -> str:
    expression = alert.expression.replace("|", r"\|")
    return f"| {alert.name} | `{expression}` | {alert.lasts} | {alert.summary} |"


if __name__ == "__main__":
    PAGE.write_text(monitoring_page())
