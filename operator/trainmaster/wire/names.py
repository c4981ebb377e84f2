"""Define every label, annotation, variable, path, port and exit code that two processes must agree on, each once."""

import signal

GROUP = "trainmaster.dev"
VERSION = "v1"
KIND = "TrainingJob"
PLURAL = "trainingjobs"
BEFORE_A_NAME = f"{KIND.lower()}.{GROUP}/"  # as kubectl writes a job's name
API_VERSION = f"{GROUP}/{VERSION}"

# Roles. A role is part of pod names, so it is lower case there (`ROLE_IN_NAMES`).
WORKER = "worker"
PARAMETER_SERVER = "parameterServer"
ROLE_IN_NAMES = {WORKER: "worker", PARAMETER_SERVER: "parameterserver"}

LABEL_JOB = f"{GROUP}/job"
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
LABEL_INCARNATION = f"{GROUP}/incarnation"
ANNOTATION_REVISION = f"{GROUP}/revision"  # of the spec that a pod was made of (core/situation/revision.py)
SUBMISSION = f"{GROUP}/submission"  # annotation of a job whose code is still to come (cluster/submission.py)
# Labels by which services and policies select our pods, the operator's too: they must be on no other pod.
RESERVED_LABELS = (f"{GROUP}/", "app.kubernetes.io/")
MAX_INCARNATION = 999_999_999  # a number in a label or a name with more digits is not read
MAIN_CONTAINER = "trainer"
INSTALLER_CONTAINER = "trainmaster-code"  # brings agent and trainer into a user's own image
TOKEN_AUDIENCE = "trainmaster"
TOKEN_SECONDS = 3600  # such a token lasts at most so long

# The agent reads these; both platforms write them (core/replica_environment.py).
ENV_JOB = "TRAINMASTER_JOB"  # namespace/name
ENV_JOB_UID = "TRAINMASTER_JOB_UID"
ENV_ROLE = "TRAINMASTER_ROLE"
ENV_INDEX = "TRAINMASTER_INDEX"
ENV_INCARNATION = "TRAINMASTER_INCARNATION"
ENV_POD_UID = "TRAINMASTER_POD_UID"
ENV_ADDRESS = "TRAINMASTER_ADDRESS"  # the IP on which peers reach this replica
ENV_OPERATOR = "TRAINMASTER_OPERATOR"  # base URL of the heartbeat intake
ENV_TOKEN_FILE = "TRAINMASTER_TOKEN_FILE"  # re-read for every request: the kubelet rotates it
ENV_RANKS = "TRAINMASTER_RANKS"  # ranks (devices) of this replica
ENV_CORES = "TRAINMASTER_CORES"  # of the replica, which its data workers may use; unset: those that the kernel allows
ENV_THREADS = "TRAINMASTER_THREADS"  # threads of each rank, where the user does not set OMP_NUM_THREADS; unset: 1
ENV_TRAINING = "TRAINMASTER_TRAINING"  # JSON of wire.training.TrainingPlan
ENV_CODE = "TRAINMASTER_CODE"  # folder in which code is mounted, maybe empty; unset: neither code nor packages come
ENV_CHECKPOINTS = "TRAINMASTER_CHECKPOINTS"  # folder of this job's checkpoints and metrics
ENV_SCRATCH = "TRAINMASTER_SCRATCH"  # a folder for sockets, progress pages, error files
ENV_WARM_SOCKET = "TRAINMASTER_WARM_SOCKET"  # a warm parent to share; unset: the agent starts its own
ENV_PARENT_PID = "TRAINMASTER_PARENT_PID"  # local platform only: when this process has ended, everything ends
ENV_GRACE = "TRAINMASTER_GRACE_SECONDS"  # what ranks get between SIGTERM and SIGKILL when the agent itself must go
ENV_PRELOAD = "TRAINMASTER_PRELOAD"  # the user's: what the warm parent imports at once; empty: it learns nothing, too

# A variable of the user's that would change how the agent itself starts travels as TRAINMASTER_ENV_NAME; the agent's
# first program gives it its own name back, for the ranks (cluster/variable_renaming.py, agent/start.py).
ENV_OF_THE_USER = "TRAINMASTER_ENV_"

# Variables of the warm parent, unless the user sets them: malloc asks the kernel for pages of 2 MiB. Every rank forked
# from it has its heap, and the time of a fork, or of a rank's end, grows with the number of pages.
WARM_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

# The warm parent is started by `python -c WARM_PROGRAM WARM_MODULE OPTIONS`, without its working directory in sys.path,
# as a user's `random.py` may lie there, and without options of Python, which its ranks would have too.
WARM_MODULE = "trainmaster_trainer.agent.warm"
WARM_PROGRAM = f"import sys; sys.path[:] = filter(None, sys.path); from {WARM_MODULE} import main; main()"

ENV_FAULTS = "TRAINMASTER_FAULTS"  # local platform only: the folder of wire.faults; unset: none

# Variables of the local platform only: in a pod one could only come from a user's ConfigMap.
LOCAL_ONLY = (ENV_WARM_SOCKET, ENV_PARENT_PID, ENV_FAULTS)

# The agent writes these for a rank beside the usual torchrun variables.
ENV_PROGRESS_FILE = "TRAINMASTER_PROGRESS_FILE"
ENV_STACKS_FILE = "TRAINMASTER_STACKS_FILE"  # where a rank that is asked for them writes its Python stacks
ENV_PACKAGES = "TRAINMASTER_PACKAGES"  # folders of our packages, for each Python that a rank of a script starts
ENV_PLACE = "TRAINMASTER_PLACE"  # likewise: RANK/RANKS, as the agent gave them: a script may set RANK for its processes
ENV_IMPORTS = "TRAINMASTER_IMPORTS_FILE"  # where one rank notes what it imports; empty: it does not
ENV_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # torchrun's own name, so that scripts with @record work
ENV_ATTEMPT = "TRAINMASTER_ATTEMPT"
ENV_ROSTER = "TRAINMASTER_ROSTER"  # a file with the JSON of wire.messages.Roster, replaced when members come or go

ENV_LISTEN = "TRAINMASTER_LISTEN_FD"  # a socket that listens at this rank's port of the roster
ENV_DOUBTED_ATTEMPT = "TRAINMASTER_DOUBTED_ATTEMPT"  # checkpoints of later attempts may be used; empty: no doubt
ENV_RESUME_BEFORE = "TRAINMASTER_RESUME_BEFORE"  # a step: only older checkpoints, and no memory; empty: any
ENV_MEMORY = "TRAINMASTER_MEMORY"  # a folder in memory that outlives the ranks, not the replica
ENV_SHARED_MEMORY = "TRAINMASTER_SHARED_MEMORY"  # "off": ranks of one host use the network, as between hosts

USERS_OWN = (ENV_PRELOAD, ENV_SHARED_MEMORY)  # variables that a job may set

HEARTBEAT_PATH = "/v1/heartbeat"
MAX_HEARTBEAT_BYTES = 256 << 10  # twice the largest that an agent composes

# glibc's, for an agent and its ranks (RES_OPTIONS): torch asks the name server for the name of each address that it
# connects to, and one answer that is lost holds all ranks up for the 5 s until it is asked again (decision 0219).
RESOLVER_OPTIONS = "timeout:1 attempts:5"

# Exit codes with a meaning of their own, the first three after sysexits.h.
EXIT_BAD_CONFIGURATION = 78  # of a rank: a restart will not help
EXIT_UNAVAILABLE = 75  # of an agent: where code or packages come from does not answer
EXIT_NO_WARM_PARENT = 70  # of an agent: the warm parent ends at its start, again and again
EXIT_JOB_GONE = 69  # of an agent: the operator has answered for ten minutes that job or pod is deleted
EXIT_TERMINATED = 143  # of an agent or a rank that got SIGTERM: 128 + 15, as in a shell


def replica_name(job: str, role: str, index: int, incarnation: int) -> str:
    """Return the deterministic name of a pod: creating it twice gives one pod and an "already exists"."""
    return f"{job}-{ROLE_IN_NAMES[role]}-{index}-{incarnation}"


def replica_key(role: str, index: int) -> str:
    """Return the name of a replica over all its incarnations, as in `status.incarnations`."""
    return f"{role}-{index}"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL. Most real-time signals have none, so it is SIG and the number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
