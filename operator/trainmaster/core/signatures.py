"""What a rank's first error says about its class: a table of exception types and words, read from top to bottom.

The type comes first, so that a user's `ValueError("no gloo for you")` stays a PythonError: torch, the transports and
the operating system raise their own types. The words are those of torch 2.x, gloo, NCCL 2.x, CUDA 12 and CPython 3.11,
taken from bug reports. Called by `failures`.
"""

import re
from dataclasses import dataclass

from trainmaster.core import classes
from trainmaster.wire.messages import ErrorReport

# Who speaks. `Error` is what torch's own error file says of a text without a type.
_TORCH = (
    "RuntimeError|AcceleratorError|DistError|DistBackendError|DistNetworkError|DistStoreError|QueueEmptyError|Error"
)
_SYSTEM = r"OSError|IOError|EnvironmentError|BlockingIOError|ChildProcessError|StartFailed"
_SOCKETS = r"Connection\w*Error|BrokenPipeError|TimeoutError|timeout|PeerLostError|RefusedError|BadFrameError"
_CLIENTS = r"gaierror|herror|\w*ConnectionError|\w*ConnectTimeout\w*|\w*ReadTimeout\w*|MaxRetryError|NewConnectionError"


@dataclass(frozen=True)
class Signature:
    """An error of one of these types whose message has these words is of this class."""

    failure_class: str
    types: str
    words: str = ""

    def fits(self, error: ErrorReport) -> bool:
        """Whether this line speaks of that error."""
        if not re.fullmatch(self.types, error.type[:200]):
            return False
        return not self.words or re.search(self.words, error.message[:4000], re.IGNORECASE) is not None


SIGNATURES = (
    # The trainer's own words.
    Signature(classes.NON_FINITE_LOSS, "NonFiniteLossError"),
    Signature(classes.CORRUPT_CHECKPOINT, "CorruptCheckpointError"),
    Signature(classes.CONFIGURATION, "ConfigurationError"),
    Signature(classes.SIGNAL, "WarmParentLost"),
    # Memory.
    Signature(classes.DEVICE_OUT_OF_MEMORY, "OutOfMemoryError"),
    Signature(
        classes.DEVICE_OUT_OF_MEMORY,
        _TORCH,
        r"(CUDA|HIP|XPU) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure .*out of mem",
    ),
    Signature(classes.OUT_OF_MEMORY, "MemoryError"),
    Signature(
        classes.OUT_OF_MEMORY,
        _TORCH,
        r"DefaultCPUAllocator: (can't allocate|not enough) memory"
        r"|DataLoader worker .*(killed by signal: (Killed|Bus error)|exited unexpectedly)"
        r"|unable to (open|allocate) shared memory|unable to mmap .*Cannot allocate memory",
    ),
    Signature(classes.OUT_OF_MEMORY, _SYSTEM, r"Cannot allocate memory|\[Errno 12\]"),
    # Storage.
    Signature(
        classes.OUT_OF_STORAGE,
        f"{_SYSTEM}|{_TORCH}|SafetensorError|ClientError|S3Error|StorageError",
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]|PytorchStreamWriter failed writing"
        r"|QuotaExceeded|XMinioStorageFull",
    ),
    # Devices.
    Signature(
        classes.DEVICE_FAULT,
        _TORCH,
        r"uncorrectable (ECC|NVLink) error|fallen off the bus|GPU is lost|unspecified launch failure"
        r"|no CUDA-capable device|CUDA-capable device\(s\) is/are busy or unavailable|CUDA unknown error"
        r"|CUDA driver (initialization failed|error|version is insufficient)|Driver/library version mismatch"
        r"|system not yet initialized|hardware stack error|cudaErrorDevicesUnavailable"
        r"|Unable to determine the device handle|Found no NVIDIA driver",
    ),
    Signature(classes.DEVICE_FAULT, r"NVMLError\w*", ""),
    # Misuse of a collective is the program's own error, whoever says it.
    Signature(classes.PYTHON_ERROR, _TORCH, r"ncclInvalid(Usage|Argument)|op\.preamble\.length|Duplicate GPU detected"),
    # Names and ports, before peers: the same types say them.
    Signature(
        classes.INFRASTRUCTURE,
        f"{_TORCH}|{_CLIENTS}|{_SYSTEM}|{_SOCKETS}",
        r"Temporary failure in name resolution|Name or service not known|Name does not resolve|gai error: -|getaddrinfo"
        r"|No address associated with hostname|EADDRINUSE|Address already in use|failed to listen on any local network",
    ),
    # Peers.
    Signature(classes.PEER_LOST, r"PeerLostError|RefusedError|BadFrameError"),
    Signature(classes.PEER_LOST, r"Connection(Reset|Aborted|Refused)Error|BrokenPipeError"),
    Signature(
        classes.PEER_LOST,
        _TORCH,
        r"\bgloo/|Connection (closed|reset) by (remote )?peer|Broken pipe|Socket Timeout|Socket closed"
        r"|Watchdog caught collective operation timeout|NCCL (error|communicator was aborted)|nccl(Remote|System)Error"
        r"|nccl(Internal|UnhandledCuda)Error|client socket has (timed out|failed)|Timed out waiting|timed out after \d+"
        r"|wait timeout after|waiting for clients|failed to pass monitoredBarrier|No route to host"
        r"|failed to recv, got 0 bytes|Connection refused|Application timeout caused pair closure",
    ),
    Signature(classes.PEER_LOST, "DistNetworkError|DistBackendError|DistStoreError"),
    # Everything around us.
    Signature(classes.CONFIGURATION, "StartFailed", r"\[Errno 7\]"),  # E2BIG: its variables are too large
    Signature(classes.INFRASTRUCTURE, "StartFailed|StorageError"),  # the trainer's: an object store is away
    Signature(classes.INFRASTRUCTURE, f"{_CLIENTS}|EndpointConnectionError|IncompleteRead|RemoteDisconnected"),
    Signature(
        classes.INFRASTRUCTURE,
        _SYSTEM,
        r"\[Errno (5|11|23|24|101|107|110|112|113|116|121)\]|Input/output error|Stale file handle"
        r"|Transport endpoint is not connected|Remote I/O error|Host is down|Network is unreachable|No route to host"
        r"|Resource temporarily unavailable",
    ),
    Signature(
        classes.INFRASTRUCTURE,
        r"ClientError|HTTPError|HfHubHTTPError|HTTPStatusError|S3Error|ServerError",
        r"\b(500|502|503|504|429)\b|SlowDown|InternalError|ServiceUnavailable|Too Many Requests|RequestTimeout",
    ),
)


def class_of(error: ErrorReport) -> str:
    """The class that the first line of the table gives that fits; a PythonError where none does."""
    return next((one.failure_class for one in SIGNATURES if one.fits(error)), classes.PYTHON_ERROR)
