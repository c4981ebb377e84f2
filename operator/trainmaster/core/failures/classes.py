"""Define the failure classes: what each means, what is decided, and its budget, in one visible table.

docs/generate.py draws docs/failures.md from it. Which failure is of which class: `failures.py` and `signatures.py`.

Principle (NVRx, HyperPod and Kubernetes' podFailurePolicy, read 2026): restart unless it is proven that the unchanged
job cannot get past this, or a budget is used up without progress; what the job did not cause costs it nothing.
"""

from dataclasses import dataclass

CONFIGURATION = "Configuration"
PYTHON_ERROR = "PythonError"
OUT_OF_MEMORY = "OutOfMemory"
DEVICE_OUT_OF_MEMORY = "DeviceOutOfMemory"
DATA_WORKER_DIED = "DataWorkerDied"
OUT_OF_STORAGE = "OutOfStorage"
CRASH = "Crash"
SIGNAL = "Signal"
TERMINATED = "Terminated"
PROCESS_EXIT = "ProcessExit"
PEER_LOST = "PeerLost"
ENDED_EARLY = "EndedEarly"
HANG = "Hang"
STALLED = "Stalled"
NON_FINITE_LOSS = "NonFiniteLoss"
COPIES_DIFFER = "CopiesDiffer"
CORRUPT_CHECKPOINT = "CorruptCheckpoint"
DEVICE_FAULT = "DeviceFault"
INFRASTRUCTURE = "Infrastructure"
SERVICE_UNAVAILABLE = "ServiceUnavailable"
AGENT_FAILED = "AgentFailed"
REPLICA_ENDED = "ReplicaEnded"
REPLICA_DELETED = "ReplicaDeleted"
DISRUPTION = "Disruption"
ROSTER_CHANGED = "RosterChanged"

# Failed is for ever on a cluster; a run on a laptop is simply repeated.
AGAIN = "run it again (on a cluster: delete the job and create it anew)"

_MERELY_SLOW = "If that was no hang, raise spec.failurePolicy.hangSeconds (evaluationSeconds, if it evaluated)."


@dataclass(frozen=True)
class FailureClass:
    """Hold one row of the table.

    `costs`: a restart takes one of spec.failurePolicy.maxRestarts. `repeats`: so many times with one fingerprint at the
    same step, without progress between, and the job stops. `limit`: restarts of this class without progress, then the
    job stops; `limit_of_scripts`: the same for scripts, where the class has no budget of its own otherwise. `pauses`:
    seconds before the first, second, ... restart; the last one stays.
    """

    name: str
    means: str
    why: str
    costs: bool = False
    repeats: int | None = None
    limit: int | None = None
    limit_of_scripts: int | None = None
    pauses: tuple[int, ...] = ()
    blames_node: bool = False
    older: bool = False  # the newest checkpoint is not trusted: the next attempt goes on from the one before
    symptom: bool = False  # the cause is the end of another replica, which may still be reported
    cure: str = ""  # said when the job stops for it
    cure_after_steps: str = ""  # said beside it where the job has trained
    hint: str = ""  # said when it goes on

    @property
    def decision(self) -> str:
        """Return the decision in a sentence, for docs."""
        if self.limit == 0:
            return "stop"
        if self.repeats == 1:
            return "stop"
        ends = [f"{self.repeats} times the same at one step: stop"] if self.repeats else []
        ends += [f"after {self.limit} without progress: stop"] if self.limit else []
        ends += [f"of a script, after {self.limit_of_scripts} within a day: stop"] if self.limit_of_scripts else []
        wait = f", waiting {', '.join(map(str, self.pauses))} s" if self.pauses else ""
        older = " from an older checkpoint" if self.older else ""
        return "; ".join([f"restart{older}{wait}", *ends])


CLASSES = (
    FailureClass(
        CONFIGURATION,
        "exit code 78; a program or module that the image does not have; no valid Python; variables that are too "
        "large to start it with; a program that uses a GPU in a job that asks for none",
        "What was written cannot work; trying again would only hide the sentence that says so.",
        limit=0,
        cure=f"A restart would not mend this; correct the job and {AGAIN}.",
        cure_after_steps="spec.checkpoint.resumeFrom.path goes on from checkpoints that are left.",
    ),
    FailureClass(
        PYTHON_ERROR,
        "a Python exception of the program itself",
        "Most are bugs, some are weather. The same one at the same step is a bug: a third try is wasted.",
        costs=True,
        repeats=2,
        blames_node=True,
    ),
    FailureClass(
        OUT_OF_MEMORY,
        "the kernel killed a rank, a data worker or the container for memory; MemoryError",
        "Memory use follows the data, so another order of events may pass; the same step twice will not.",
        costs=True,
        repeats=2,
        blames_node=True,
        cure="Raise spec.workers.memory (of a server: spec.parameterServers.memory), or use less: a smaller "
        "spec.training.microBatchSize, more workers, fewer data workers (spec.training.dataWorkers, in a script "
        "num_workers of its DataLoader) or a smaller prefetch.",
    ),
    FailureClass(
        DEVICE_OUT_OF_MEMORY,
        "CUDA or HIP out of memory",
        "Fragmentation and a neighbour on the device may pass; the same step twice will not.",
        costs=True,
        repeats=2,
        blames_node=True,
        cure="Set a smaller spec.training.microBatchSize, use more workers, or shard the model "
        "(spec.strategy.type: FullySharded).",
    ),
    FailureClass(
        DATA_WORKER_DIED,
        "a process that makes samples for a rank died (spec.training.dataWorkers, or a script's DataLoader)",
        "Mostly for memory, which follows the data: another order of events may pass.",
        costs=True,
        repeats=2,
        blames_node=True,
        cure="The evidence names the signal. Killed: raise spec.workers.memory, or have fewer data workers "
        "(spec.training.dataWorkers, in a script num_workers of its DataLoader) or a smaller prefetch. Bus error: "
        "/dev/shm is full, which on a cluster is memory of the pod, too (spec.workers.memory). Segmentation fault: it "
        "happened in a library of the dataset's, and no data workers (0) show where.",
    ),
    FailureClass(
        OUT_OF_STORAGE,
        "no space left, disk quota exceeded, evicted for using more ephemeral storage than its own limit",
        "Unlike the eviction of a good citizen this one is the job's own doing. Old checkpoints are pruned meanwhile.",
        costs=True,
        repeats=5,
        pauses=(10, 30, 120, 300),
        blames_node=True,
        cure="Make room: a larger volume or ephemeral-storage limit, a smaller spec.checkpoint.keep.",
    ),
    FailureClass(
        CRASH,
        "native code died: SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL",
        "A race in a library passes with luck, so one try more than for a Python error.",
        costs=True,
        repeats=3,
        blames_node=True,
        cure="Look at the last lines of the pod's log, which say where Python was; SIGBUS is often a full /dev/shm.",
    ),
    FailureClass(
        SIGNAL,
        "a rank was killed by another signal, and not for memory as far as the kernel tells",
        "It came from outside, so it says nothing about the step.",
        costs=True,
        blames_node=True,
    ),
    FailureClass(
        TERMINATED,
        "a rank was asked to end (SIGTERM, SIGINT, exit code 143 or 130) by somebody other than its agent",
        "Mostly the first sign of a pod or a node that goes: it is then booked as that, and costs nothing.",
        costs=True,
        symptom=True,
    ),
    FailureClass(
        PROCESS_EXIT,
        "a rank ended with an exit code and no Python error, or before the others",
        "Nothing is known of the cause. A program that ends in the same way three times does so again.",
        costs=True,
        repeats=3,
        blames_node=True,
    ),
    FailureClass(
        PEER_LOST,
        "a survivor's error: its peer's connection broke or fell silent (gloo, NCCL, store, our transport)",
        "An echo. The cause takes its place in the ledger as soon as it is told; alone it never ends a job while "
        "somebody has not spoken.",
        costs=True,
        limit_of_scripts=3,
        symptom=True,
        cure="No rank is known to have failed or ended. One of them may have left its process group "
        "(destroy_process_group, or an error that the script caught) while another one still waited for it: compare "
        "which collectives the ranks call. Or the network between the replicas breaks.",
    ),
    FailureClass(
        ENDED_EARLY,
        "a rank of a script ended with exit code 0 while another one still waited for it in a collective",
        "Ranks that take different numbers of steps do so again. The loss of a replica may be what made them differ, "
        "and takes its place in the ledger.",
        costs=True,
        repeats=1,
        symptom=True,
        cure="Give all ranks the same number of batches (DistributedSampler, or drop_last=True of the DataLoader), or "
        "train inside DistributedDataParallel's join().",
    ),
    FailureClass(
        HANG,
        "no step ended for too long: the agent ended the rank",
        "Deadlocks pass more often than not, and cost the time that finding them took: a budget of their own.",
        limit=3,
        blames_node=True,
        cure=f"The ledger holds the stacks of the hung ranks. {_MERELY_SLOW}",
        hint=_MERELY_SLOW,
    ),
    FailureClass(
        STALLED,
        "no step ended for too long, and all ranks of the replica only waited for their peers",
        "The victim of somebody's hang, whose own report takes its place; with none, nobody knows who hung.",
        limit=3,
        symptom=True,
        cure=f"The ledger holds the stacks of the waiting ranks: look which collective they wait in. {_MERELY_SLOW}",
        hint=_MERELY_SLOW,
    ),
    FailureClass(
        NON_FINITE_LOSS,
        "the loss is NaN or infinite, or the state that was to be saved is (NonFiniteLossError)",
        "One more try helps where a device computed wrongly once, if what it left is not gone on from: an older "
        "checkpoint, and no memory. Arithmetic that blows up does so again.",
        limit=1,
        older=True,
        blames_node=True,
        cure="Lower the learning rate, clip gradients or mend the data at that step.",
    ),
    FailureClass(
        COPIES_DIFFER,
        "ranks that took the same steps have different copies of the model (CopiesDifferError)",
        "A device or memory that was wrong once is not gone on from: an older checkpoint, and no memory. A task that "
        "moves the copies apart does so again.",
        limit=1,
        older=True,
        blames_node=True,
        cure=f"Leave out of the task what the error names, choose another strategy, and {AGAIN}.",
    ),
    FailureClass(
        CORRUPT_CHECKPOINT,
        "there are checkpoints, and none could be read as it was written (CorruptCheckpointError)",
        "A storage that lies once may tell the truth the next time. Where one is good, bad ones are passed over by the "
        "trainer itself; it never begins anew over them.",
        limit=2,
        pauses=(0, 10),
        cure="Restore spec.checkpoint.storage, or take the bad checkpoints away to begin at step 0.",
    ),
    FailureClass(
        DEVICE_FAULT,
        "the device or its driver: ECC, NVLink, fallen off the bus, unhealthy, driver mismatch",
        "Not the job's fault, but the same node is likely to do it again, so it counts against the node.",
        limit=6,
        pauses=(0, 5, 30, 60),
        blames_node=True,
        cure="Have the node's devices looked at: nvidia-smi -q and the kernel's log (Xid).",
    ),
    FailureClass(
        INFRASTRUCTURE,
        "container runtime, network storage, node agent, process could not be started",
        "Weather: it passes, but not at once.",
        limit=10,
        pauses=(0, 5, 15, 30, 60),
        blames_node=True,
        cure="Look at the named node or service.",
    ),
    FailureClass(
        SERVICE_UNAVAILABLE,
        "a service away from the node does not answer: object store, HTTP, hub, name resolution",
        "Weather that all nodes share, so none is blamed and no pod is moved; outages of such services last for hours.",
        limit=30,
        pauses=(0, 5, 15, 30, 60, 120, 300, 600),
        cure="Look at the named service, and whether the job's nodes reach it.",
    ),
    FailureClass(
        AGENT_FAILED,
        "the agent, or an init container before it, ended with an error of its own (exit codes 1 to 127)",
        "The last lines of its log are the evidence. What ends a program in the same way three times is in the image, "
        "the variables or the volumes, and no weather.",
        costs=True,
        repeats=3,
        pauses=(0, 15),
        blames_node=True,
        cure="Mend what the last line says: the image (it needs Python 3.9 or newer), spec.workers.env or volumes, or "
        "an init container of the template.",
    ),
    FailureClass(
        REPLICA_ENDED,
        "the agent itself, or its container, ended while the job was not done",
        "Exit code 137 without the kernel's word for memory; exit code 0 of one worker alone; anything else.",
        costs=True,
        blames_node=True,
    ),
    FailureClass(
        REPLICA_DELETED,
        "somebody deleted the pod, or it is simply gone",
        "People and clusters move pods; nobody's fault.",
    ),
    FailureClass(
        DISRUPTION,
        "eviction, preemption, drain, node lost or shut down, node full after all",
        "The cluster's own business: free, and as often as it likes.",
    ),
    FailureClass(
        ROSTER_CHANGED,
        "a member was replaced while others had begun with the older roster",
        "Our own bookkeeping.",
    ),
)

BY_NAME = {one.name: one for one in CLASSES}
FREE = frozenset(one.name for one in CLASSES if not one.costs and one.limit is None)  # these take from no budget
SYMPTOMS = frozenset(one.name for one in CLASSES if one.symptom)


def class_of(name: str) -> FailureClass:
    """Return the row of this name; for an unknown one (from an edited or older status) the row of an unknown cause."""
    return BY_NAME.get(name) or BY_NAME[PROCESS_EXIT]
