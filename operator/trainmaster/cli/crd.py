"""`trainmaster crd`: the CustomResourceDefinition, for `trainmaster crd | kubectl apply --server-side -f -`."""

import sys

from trainmaster.api.schema import crd_yaml


def crd() -> int:
    """The command. Returns its exit code."""
    sys.stdout.write(crd_yaml())
    return 0
