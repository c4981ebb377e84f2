"""A stage for members that come and go one by one: agents that offer ports, count their starts, and obey."""

from __future__ import annotations

import dataclasses

from trainmaster.core.states.observed import Replica
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import Heartbeat, Member, Orders, RankProgress, Rendezvous, Roster

from tests.builders import a_death, a_job, saying
from tests.core.stage import Stage
from tests.platforms.telling import impossible

SCRIPT = {"command": ["python", "train.py"], "steps": 1000}


class Members(Stage):
    """A stage whose agents offer a port per rank, and count their starts."""

    def offer(self) -> Members:
        """Every agent that has none offers a port of its own."""
        for name, replica in self.replicas.items():
            beat = replica.heartbeat
            if beat and not beat.offer.ports:
                port = 50000 + 7 * len(name) + sum(name.encode()) + beat.sequence
                self.replicas[name] = saying(replica, _offering(beat, port))
        self.settle()
        return self

    def follow(self, *keys: str, step: int = 1, resumed_step: int | None = None) -> Members:
        """These agents (all) do as they are told, and their ranks train, from this step or another; settle."""
        went_on = step if resumed_step is None else resumed_step
        return self._obey(keys, RankProgress(0, step, resumed_step=went_on))

    def load(self, *keys: str) -> Members:
        """These agents (all) do as they are told, and their ranks load; settle."""
        return self._obey(keys, RankProgress(0, 0, "load"))

    def _obey(self, keys: tuple[str, ...], told: RankProgress) -> Members:
        for replica in self._chosen(keys):
            orders = self.orders.get(replica.uid)
            if replica.heartbeat and orders and orders.verb == Verb.RUN and orders.roster:
                self.replicas[replica.name] = _running(replica, replica.heartbeat, orders.roster, told)
        self.settle()
        return self

    def tell(self, *keys: str, **members: object) -> Members:
        """The ranks of these agents say this of themselves from now on; settle."""
        for replica in self._chosen(keys):
            beat = replica.heartbeat
            assert beat
            ranks = tuple(dataclasses.replace(rank, **members) for rank in beat.ranks)  # type: ignore[arg-type]
            assert not impossible(ranks), impossible(ranks)
            self.replicas[replica.name] = saying(replica, dataclasses.replace(beat, ranks=ranks))
        self.settle()
        return self

    def roster(self, key: str = "worker-0") -> Roster:
        """What this agent was told."""
        orders = self.orders_of(key)
        assert orders.roster is not None, orders
        return orders.roster

    def orders_of(self, key: str) -> Orders:
        """Its orders."""
        return self.orders[self.replica(key).uid]

    def line(self, key: str) -> Member | None:
        """Its line in the roster."""
        found = [one for one in self.roster().members if names.replica_key(one.role, one.index) == key]
        return found[0] if found else None

    def dies(self, key: str, **more: object) -> Members:
        """A rank of this member is killed; settle."""
        start = self.status.starts.get(key)
        beat = self.replica(key).heartbeat
        assert beat
        report = dataclasses.replace(a_death(), attempt=self.status.attempt, start=start, **more)  # type: ignore[arg-type]
        died = dataclasses.replace(beat, state=AgentState.FAILED, exit=report, sequence=beat.sequence + 1)
        self.change(key, lambda replica: saying(replica, died))
        return self


def _offering(beat: Heartbeat, port: int) -> Heartbeat:
    return dataclasses.replace(beat, offer=dataclasses.replace(beat.offer, ports=(port,)))


def _running(replica: Replica, beat: Heartbeat, roster: Roster, told: RankProgress) -> Replica:
    """As the agent does: anew only if its own line is new, or its ranks have loaded."""
    assert not impossible([told]), impossible([told])
    (line,) = [one for one in roster.members if (one.role, one.index) == (replica.role, replica.index)]
    if beat.state != AgentState.WAITING and beat.attempt == roster.attempt and beat.start == line.start:
        loads = beat.state == AgentState.RUNNING and beat.ranks[0].phase == "load"
        ranks = (dataclasses.replace(told, rank=line.first_rank),) if loads else beat.ranks
        return saying(replica, dataclasses.replace(beat, roster_digest=roster.digest, ranks=ranks))
    assert line.ports == beat.offer.ports, "told to listen where nobody listens"
    return saying(
        replica,
        dataclasses.replace(
            beat,
            state=AgentState.RUNNING,
            attempt=roster.attempt,
            start=line.start,
            roster_digest=roster.digest,
            rendezvous=dataclasses.replace(roster.rendezvous, ports=line.ports),
            offer=Rendezvous(beat.offer.port + 1, f"key-{beat.offer.port + 1}", (line.ports[0] + 1,)),
            ranks=(dataclasses.replace(told, rank=line.first_rank),),
            sequence=beat.sequence + 1,
        ),
    )


def a_parameter_server_job(workers: int = 2, servers: int = 1, **spec: object) -> Members:
    """All of them train."""
    job = a_job().where(strategy={"type": "ParameterServer"}, parameterServers={"replicas": servers}, training=SCRIPT)
    stage = Members(job.where(**spec).with_workers(workers))
    stage.settle().call_in()
    return stage.offer().follow()
