"""Print what TensorBoard's own reader finds in a folder: figures by name, each as pairs of step and value; texts."""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

found = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
found.Reload()
tags = found.Tags()
scalars = {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in tags["scalars"]}
texts = {tag: [one.tensor_proto.string_val[0].decode() for one in found.Tensors(tag)] for tag in tags["tensors"]}
print(json.dumps({"scalars": scalars, "texts": texts}))
