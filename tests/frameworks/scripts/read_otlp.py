"""Print what requests of OTLP hold, each in a file of a folder: the resource, and the points of each metric."""

import json
import sys
from pathlib import Path

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

resource, metrics = {}, {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    request = ExportMetricsServiceRequest.FromString(path.read_bytes())
    for one in request.resource_metrics:
        resource |= {attribute.key: attribute.value.string_value for attribute in one.resource.attributes}
        for metric in one.scope_metrics[0].metrics:
            points = [(point.time_unix_nano, point.as_double) for point in metric.gauge.data_points]
            metrics.setdefault(metric.name, []).extend(points)
print(json.dumps({"resource": resource, "metrics": metrics}))
