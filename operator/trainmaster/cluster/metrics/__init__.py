"""Serve the operator's metrics to Prometheus.

- `job_figures`: what is told of each job, as one table
- `instruments`: what the operator counts and times of its own work
- `page`: the HTTP page, made in a thread so that no heartbeat waits for it
"""
