"""A node whose container runtime mounts no images says something else, and is named for what it lacks."""

import pytest
from trainmaster.cluster import pod_reading
from trainmaster.core.situation.obstacles import sentence

from .test_pods import a_pod, waiting, waits

# What containerd 1.6 and CRI-O 1.30 say of an image volume, whose mount has a field that they do not know.
NO_IMAGE_VOLUMES = [
    'failed to generate container "5f2c" spec: failed to mkdir "": mkdir : no such file or directory',
    "Mount.HostPath is empty",
]


@pytest.mark.parametrize("said", NO_IMAGE_VOLUMES)
def test_a_runtime_without_image_volumes_is_named(said: str) -> None:
    pod = a_pod({"phase": "Pending", "containerStatuses": waiting("CreateContainerError", said)})
    told = pod_reading.read(pod).replica.obstacle
    assert told == waits("CreateContainerError", said), "the pod has no image volume"
    pod["spec"]["volumes"] = [{"name": "trainmaster-bundle", "image": {"reference": "registry.example/code@sha256:0"}}]
    told = pod_reading.read(pod).replica.obstacle
    assert told is not None
    assert told.reason == "ImageNotMounted"
    assert "cannot mount an image: containerd 2.1 or CRI-O 1.31 is needed" in told.message
    assert "5f2c" not in told.message, "it is another one at each try"
    assert "Bring the code by spec.training.code.url or git" in sentence(told)
    pod["status"]["containerStatuses"] = waiting("CreateContainerError", "no such device")
    assert pod_reading.read(pod).replica.obstacle == waits("CreateContainerError", "no such device")
