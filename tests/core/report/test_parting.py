"""What goes with the pods: checkpoints in their own folders, the model, and logs beside sidecars."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trainmaster.wire.messages import CheckpointRecord

from tests.builders import a_job, ended, evicted
from tests.core.stage import Stage, a_stage

LOGS = {"spec": {"containers": [{"name": "trainer"}, {"name": "logs", "image": "logs:1"}]}}


def a_private_group(workers: int = 2) -> Stage:
    """All train, and each has a checkpoint of step 50 in its own folder."""
    stage = a_stage(workers)
    stage.private_checkpoints = True
    stage.train(step=60)
    for index in range(workers):
        saved(stage, f"worker-{index}", 50)
    return stage.wait(20)


def saved(stage: Stage, key: str, step: int) -> None:
    """Let this replica say that it has saved."""
    stage.say(key, lambda beat: dataclasses.replace(beat, checkpoint=CheckpointRecord(step, 0.0, "abc")))


def checkpoint(stage: Stage) -> int | None:
    """The step that the status names."""
    return stage.status.checkpoint.step if stage.status.checkpoint else None


def test_a_checkpoint_goes_with_the_last_pod_that_has_it() -> None:
    stage = a_private_group()
    assert checkpoint(stage) == 50
    stage.change("worker-0", evicted).wait(10)
    assert checkpoint(stage) == 50, "the other one has it"
    stage.change("worker-1", evicted)
    stage.call_in().obey(step=5).wait(20)
    assert checkpoint(stage) is None
    saved(stage, "worker-0", 20)
    assert checkpoint(stage.wait(20)) == 20


def test_a_checkpoint_on_storage_outlives_all_pods() -> None:
    stage = a_private_group()
    stage.private_checkpoints = False
    for key in ("worker-0", "worker-1"):
        stage.change(key, evicted)
    assert checkpoint(stage.call_in().obey(step=51).wait(20)) == 50


def test_a_new_operator_waits_for_what_replicas_say_that_they_have() -> None:
    stage = a_private_group().operator_restarts()
    assert checkpoint(stage.wait(10)) == 50


def test_that_nothing_keeps_the_model_is_said_from_the_beginning_and_at_the_end() -> None:
    stage = a_private_group()
    assert stage.told("CheckpointStorage") == ("False", "NotSet")
    stage.finish()
    assert stage.status.message == (
        "All 2 workers finished. The model was not kept, as spec.checkpoint.storage is not set."
    )
    kept = a_stage(2).train().finish()
    assert (kept.told("CheckpointStorage"), kept.status.message) == (("", ""), "All 2 workers finished.")


def _kept_by_a_mesh(spec: Mapping[str, object] | None = None) -> Stage:
    """The job has succeeded; of its two pods one has ended, and in the other an injected container runs on."""
    stage = Stage(a_job().with_workers(2, **({"template": spec} if spec else {}))).train().finish()
    stage.change("worker-0", lambda replica: ended(replica, 0))
    return stage.change("worker-1", lambda replica: dataclasses.replace(ended(replica, 0), kept_by="istio-proxy"))


def test_a_pod_that_a_sidecar_keeps_is_deleted_when_its_log_could_be_read_and_that_is_said() -> None:
    stage = _kept_by_a_mesh().wait(25)
    assert stage.told("SidecarsEnded") == ("", ""), "it may end by itself"
    stage.wait(10)
    assert stage.told("SidecarsEnded") == ("False", "StillRunning")
    (event,) = [event for event in stage.events if event.reason == "StillRunning"]
    assert "the container istio-proxy runs on in digits-worker-1-0" in event.message
    assert "deleted at 12:05:00 UTC, and their logs with them" in event.message
    assert "an init container with restartPolicy: Always" in event.message
    assert len(stage.wait(200).replicas) == 2
    assert stage.wake_at is not None
    stage.wait((stage.wake_at - stage.now).total_seconds())
    assert list(stage.replicas) == ["digits-worker-0-0"], "who has ended keeps its log"
    assert stage.told("SidecarsEnded") == ("True", "PodsDeleted")
    assert stage.wake_at is None


def test_a_sidecar_that_ends_late_keeps_pod_and_log() -> None:
    stage = _kept_by_a_mesh().wait(100)
    stage.change("worker-1", lambda replica: dataclasses.replace(replica, kept_by=""))
    assert len(stage.wait(1000).replicas) == 2
    assert stage.told("SidecarsEnded") == ("True", "AllEnded")
    assert stage.wake_at is None


def test_of_a_sidecar_in_the_template_the_end_itself_tells() -> None:
    stage = _kept_by_a_mesh(LOGS)
    assert "(logs) hold the pods until they end: after 5 minutes" in (stage.status.message or "")
