"""Describe each framework for users: how its processes find one another, who decides, what a restart means.

`explain` shows this in place of the strategy's own words, which are about tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

_ALL_DECIDE = "The job has succeeded when the processes of all workers have ended with exit code 0."
_GROUP_AGAIN = (
    "A death restarts the whole group within moments, with new ports; the script goes on from what it has saved."
)


@dataclass(frozen=True)
class FrameworkWords:
    """Hold the sentences about one framework."""

    finds: str
    """How its processes find one another."""
    talks: str
    """Over what they exchange their numbers."""
    restart: str
    """What happens when something dies."""
    decides: str = _ALL_DECIDE
    """Whose end is the end of the job."""


WORDS: dict[str, FrameworkWords] = {
    "JAX": FrameworkWords(
        finds="jax.distributed.initialize() needs no arguments, nor does keras.distribution.initialize(). "
        "The coordinator is opened by rank 0.",
        talks="XLA exchanges arrays between the processes: NCCL between GPUs, gloo between CPUs.",
        restart=f"JAX itself notices a death after 100 s; here the agent ends the group at once. {_GROUP_AGAIN}",
    ),
    "XGBoost": FrameworkWords(
        finds="The tracker runs beside rank 0 and is up before any script begins; the script's "
        "xgboost.collective.CommunicatorContext is given DMLC_TRACKER_URI, DMLC_TRACKER_PORT and DMLC_TASK_ID.",
        talks="The processes add up histograms by all-reduce, over TCP.",
        restart=f"{_GROUP_AGAIN} XGBoost's own way is the argument xgb_model of train().",
    ),
    "TensorFlow": FrameworkWords(
        finds="TF_CONFIG names all processes with their ports. Under ParameterServer the first worker is the chief, "
        "the others are workers, and the servers are ps: the same command runs in each, and its task says which it is.",
        talks="TensorFlow exchanges tensors over gRPC, or NCCL between GPUs.",
        restart=f"{_GROUP_AGAIN} Worker 0, which is the chief, writes the checkpoints.",
        decides="Under ParameterServer the job ends with the chief, and all others are told to end then; else the job "
        "has succeeded when all workers have ended with exit code 0.",
    ),
    "MPI": FrameworkWords(
        finds="mpirun runs on the first worker and reaches the others through our agent, without sshd, keys or root. "
        "Its hostfile is there, with as many slots as GPUs or cores.",
        talks="MPI exchanges messages over TCP, and shared memory within a replica.",
        restart=_GROUP_AGAIN,
        decides="The job ends with mpirun, and the other workers are told to end then.",
    ),
    "Horovod": FrameworkWords(
        finds="hvd.init() needs no launcher: each rank is told its slot by HOROVOD_RANK and the like, and Horovod's "
        "rendezvous runs beside rank 0 and is up before any script begins.",
        talks="Horovod adds up tensors by gloo, over TCP.",
        restart=f"{_GROUP_AGAIN} Horovod's elastic mode is not needed for that, nor for another number of workers.",
    ),
    "Ray": FrameworkWords(
        finds="ray.init() needs no arguments. Ray's head runs beside the first worker, where the script runs, and is "
        "up first; each other worker is a node of Ray's, with as many CPUs as GPUs or cores.",
        talks="Ray moves objects over gRPC; what Ray Train adds up, by gloo or NCCL. The attempt's key is the token.",
        restart=f"{_GROUP_AGAIN} Ray Train's own way is storage_path below the folder of checkpoints.",
        decides="The job ends with the script on the first worker, and Ray's nodes are told to end then.",
    ),
    "Spark": FrameworkWords(
        finds="The script on the first worker is Spark's driver and is given the master's address: "
        "SparkSession.builder.getOrCreate() takes no more. The master runs beside it and is up first; each other "
        "worker is one of Spark's, with as many cores as GPUs or cores.",
        talks="Spark's processes speak to one another over TCP, with the attempt's key as their secret.",
        restart=_GROUP_AGAIN,
        decides="The job ends with the script on the first worker, and Spark's workers are told to end then.",
    ),
    "SageMaker": FrameworkWords(
        finds="SageMaker's folders are laid out for each worker: hosts are in input/config/resourceconfig.json, the "
        "arguments in hyperparameters.json, folders of SM_CHANNEL_... in input/data. SAGEMAKER_BASE_DIR says where.",
        talks="What the container's own program brings: no framework is added to it.",
        restart=f"{_GROUP_AGAIN} What is in checkpoints/ is there again.",
        decides="The job has succeeded when the commands of all workers have ended with exit code 0 and none has "
        "written output/failure, whose words are the evidence else. What is in model/ is the result.",
    ),
    "LightGBM": FrameworkWords(
        finds="The script hands LIGHTGBM_MACHINES, LIGHTGBM_LOCAL_LISTEN_PORT and LIGHTGBM_NUM_MACHINES on as the "
        "parameters machines, local_listen_port and num_machines.",
        talks="The processes add up histograms (tree_learner: data) over TCP.",
        restart=f"{_GROUP_AGAIN} LightGBM's own way is the argument init_model of train().",
    ),
}
