"""Run `trainmaster crd`: print the CustomResourceDefinition for `kubectl apply --server-side -f -`."""

import sys

from trainmaster.api.schema import crd_yaml


def crd() -> int:
    """Run the command, and return its exit code."""
    sys.stdout.write(crd_yaml())
    return 0
