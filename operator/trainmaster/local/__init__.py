"""The one-machine hand: the same YAML as processes on this machine. `cli/run.py` is its only caller."""
