"""Run a job of the same YAML as processes on one machine."""
