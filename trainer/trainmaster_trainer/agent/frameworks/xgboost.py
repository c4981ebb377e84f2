"""Tell a script of XGBoost where its tracker is, and run the tracker beside the first rank."""

from __future__ import annotations

from trainmaster_trainer.agent.companions import Companion
from trainmaster_trainer.agent.frameworks.position import Instructions, Position

TRACKER = "XGBoost's tracker"
# By task, the rank in XGBoost's group is ours.
_SERVE = """
import sys
from xgboost.tracker import RabitTracker
tracker = RabitTracker(host_ip=sys.argv[1], port=int(sys.argv[2]), n_workers=int(sys.argv[3]), sortby="task")
tracker.start()
tracker.wait_for()
"""


def instruct(position: Position) -> Instructions:
    """Return the variables that XGBoost's own launchers set, and the tracker as a companion that comes first."""
    first, size = position.first, str(len(position.peers))
    serve = (position.interpreter, "-c", _SERVE, first.address, str(first.port), size)
    return Instructions(
        variables={
            "DMLC_TRACKER_URI": first.address,
            "DMLC_TRACKER_PORT": str(first.port),
            "DMLC_TASK_ID": f"{position.rank:06}",  # sorted as text
            "DMLC_NUM_WORKER": size,
        },
        companions=(Companion(TRACKER, serve),) if position.leads else (),
        awaits=TRACKER,
    )
