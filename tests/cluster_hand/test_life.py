"""A job's life on a real API server, from creation to the end, with agents that the test plays."""

from trainmaster.wire.messages import CheckpointRecord

from .lab import Lab


def test_a_job_lives_from_creation_to_success(lab: Lab) -> None:
    lab.submit(workers={"replicas": 2})
    first, second = lab.await_pods("digits-worker-0-0", "digits-worker-1-0")
    assert first["metadata"]["ownerReferences"][0]["controller"] is True
    agents = lab.start_training("digits-worker-0-0", "digits-worker-1-0")
    members = agents[0].orders.roster.members  # type: ignore[union-attr]
    assert [member.address for member in members] == [agent.pod["status"]["podIP"] for agent in agents]
    running = lab.await_phase("Running")
    assert running["status"]["replicas"]["summary"] == "2/2"
    for agent in agents:
        agent.state, agent.step = "Finished", 100
        agent.checkpoint = CheckpointRecord(100, 1.0, "ab" * 32)
        agent.beat()
    done = lab.await_phase("Succeeded")
    assert done["status"]["progress"]["step"] == 100
    assert done["status"]["checkpoint"]["step"] == 100
    for agent in agents:
        assert agent.await_orders("Exit").exit_code == 0
        lab.patch_pod(agent.pod["metadata"]["name"], {"phase": "Succeeded"})
    lab.await_event("AllWorkersFinished")
    print(sum(lab.server.audit(lab.namespace).values()), lab.server.audit(lab.namespace))
