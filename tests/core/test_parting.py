"""What goes with the pods: checkpoints in their own folders, the model, and logs beside sidecars."""

from __future__ import annotations

import dataclasses

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


def test_a_pod_that_a_sidecar_holds_is_deleted_when_its_log_could_be_read() -> None:
    stage = Stage(a_job().with_workers(1, template=LOGS)).train().finish()
    assert "(logs) hold the pods" in (stage.status.message or "")
    stage.change("worker-0", lambda replica: dataclasses.replace(ended(replica, 0), lingering=True))
    assert stage.wait(20).replicas
    assert stage.wake_at is not None
    assert not stage.wait(15).replicas
