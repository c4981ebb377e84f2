"""Print the runs that a tracking server of MLflow has: status, parameters, tags, and each metric's steps and values."""

import json
import sys

from mlflow import MlflowClient

client = MlflowClient(sys.argv[1])
runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
print(
    json.dumps(
        [
            {
                "status": run.info.status,
                "parameters": run.data.params,
                "tags": run.data.tags,
                "metrics": {
                    name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
                    for name in run.data.metrics
                },
            }
            for run in runs
        ]
    )
)
