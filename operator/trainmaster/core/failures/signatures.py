"""Map a rank's first error to its class: a table of exception types and words, read from top to bottom.

The type comes first, so that a user's `ValueError("no gloo for you")` stays a PythonError: torch, the transports and
the operating system raise their own types. The words are those of torch 2.x, gloo, NCCL 2.x, CUDA 12, CPython 3.11 and
the clients of object stores, hubs and HTTP, taken from bug reports.
"""

import re
from dataclasses import dataclass

from trainmaster.core.failures import classes
from trainmaster.wire.messages import ErrorReport

# Types by origin. `Error` is the type in torch's own error file for a text without a type.
_TORCH = (
    "RuntimeError|AcceleratorError|DistError|DistBackendError|DistNetworkError|DistStoreError|QueueEmptyError|Error"
)
# `SaveFailedError` is the trainer's: the last checkpoint could not be written; its text is that of the cause.
_SYSTEM = r"OSError|IOError|EnvironmentError|BlockingIOError|ChildProcessError|StartFailed|SaveFailedError"
_STREAMS = r"Connection(Reset|Aborted|Refused)Error|BrokenPipeError"
_OURS = r"(Memory)?PeerLostError|HandshakeRefusedError|BadFrameError"  # of peers of this job
_SOCKETS = rf"Connection\w*Error|BrokenPipeError|TimeoutError|timeout|{_OURS}"
# Clients of services: requests, urllib3, http.client; httpx; aiohttp; botocore; Google's, Azure's; Hugging Face's.
_CLIENTS = (
    r"gaierror|herror|\w*ConnectionError|\w*ConnectTimeout\w*|\w*ReadTimeout\w*|MaxRetryError|NewConnectionError"
    r"|ChunkedEncodingError|ProtocolError|ProxyError|SSL(EOF|ZeroReturn)?Error|RemoteDisconnected|IncompleteRead(Error)?"
    r"|ConnectError|RemoteProtocolError|PoolTimeout|WriteTimeout"
    r"|Client(Connector(DNS|SSL)?|OS|Payload|ConnectionReset)Error|Server(Disconnected|Timeout|Connection)Error"
    r"|(Connection|Socket)TimeoutError"
    r"|ConnectionClosedError|HTTPClientError|ResponseStreamingError|CredentialRetrievalError"
    r"|ServiceUnavailable|TooManyRequests|InternalServerError|GatewayTimeout|BadGateway|DeadlineExceeded|TransportError"
    r"|Service(Request|Response)Error|LocalEntryNotFoundError"
)
_ANSWERS = (
    r"ClientError|HTTPError|HfHubHTTPError|HTTPStatusError|S3Error|ServerError|ClientResponseError|Http(Response)?Error"
)
# What a program is told that wants a GPU where none is to be seen.
_NO_DEVICE = (
    r"no CUDA-capable device|No CUDA GPUs are available|Found no NVIDIA driver|only supported with GPUs, no GPUs found"
)
_NO_CUDA = "Torch not compiled with CUDA enabled"
_NO_DEVICE_TYPES = rf"{_TORCH}|ValueError|CUDARuntimeError|MisconfigurationException"
# The same of a line that begins with the type: its node's GPU is broken, or it was given none (`no_device`).
WANTS_A_DEVICE = re.compile(
    rf"({_NO_DEVICE_TYPES}|AssertionError): .*({_NO_DEVICE}|{_NO_CUDA})", re.IGNORECASE | re.DOTALL
)
# Code that waits for peers; torch's `record` around a user's main is no sign of that.
_COLLECTIVES = r"torch/distributed/(?!elastic/)|trainmaster_trainer/(transport|collectives)/"


@dataclass(frozen=True)
class Signature:
    """A signature maps errors of these types, with these words in message and traceback, to a failure class."""

    failure_class: str
    types: str
    words: str = ""
    trace: str = ""


SIGNATURES = (
    # The trainer's own words.
    Signature(classes.NON_FINITE_LOSS, "NonFiniteLossError"),
    Signature(classes.COPIES_DIFFER, "CopiesDifferError"),
    Signature(classes.CORRUPT_CHECKPOINT, "CorruptCheckpointError"),
    Signature(classes.CONFIGURATION, "ConfigurationError"),
    # A missing module and invalid Python are the same at the next attempt.
    Signature(classes.CONFIGURATION, "ModuleNotFoundError|SyntaxError|IndentationError|TabError"),
    Signature(classes.SIGNAL, "WarmParentLost"),
    # How Python raises SIGINT in a script.
    Signature(classes.TERMINATED, "KeyboardInterrupt"),
    # The library that the image has is one for CPUs.
    Signature(classes.CONFIGURATION, "AssertionError", _NO_CUDA),
    # Memory.
    Signature(classes.DEVICE_OUT_OF_MEMORY, "OutOfMemoryError"),
    Signature(
        classes.DEVICE_OUT_OF_MEMORY,
        _TORCH,
        r"(CUDA|HIP|XPU) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure .*out of mem",
    ),
    Signature(classes.OUT_OF_MEMORY, "MemoryError"),
    Signature(
        classes.DATA_WORKER_DIED, _TORCH, r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly|exit code)"
    ),
    Signature(
        classes.OUT_OF_MEMORY,
        _TORCH,
        r"DefaultCPUAllocator: (can't allocate|not enough) memory"
        r"|unable to (open|allocate) shared memory|unable to mmap .*Cannot allocate memory",
    ),
    Signature(classes.OUT_OF_MEMORY, _SYSTEM, r"Cannot allocate memory|\[Errno 12\]"),
    # A full /dev/shm: its content is memory.
    Signature(
        classes.OUT_OF_MEMORY,
        f"{_TORCH}|{_SYSTEM}",
        r"unable to write to file </torch_.*No space left|Error while creating shared memory segment /dev/shm/"
        r"|/dev/shm/.*No space left|No space left on device.* '/dev/shm/",
    ),
    # Python names no file there: the semaphores of a DataLoader's queues.
    Signature(
        classes.OUT_OF_MEMORY, _SYSTEM, r"\[Errno 28\]", trace=r"/multiprocessing/(synchronize|shared_memory)\.py"
    ),
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
        r"|CUDA-capable device\(s\) is/are busy or unavailable|CUDA unknown error"
        r"|CUDA driver (initialization failed|error|version is insufficient)|Driver/library version mismatch"
        r"|system not yet initialized|hardware stack error|cudaErrorDevicesUnavailable"
        r"|Unable to determine the device handle",
    ),
    Signature(classes.DEVICE_FAULT, _NO_DEVICE_TYPES, _NO_DEVICE),
    Signature(classes.DEVICE_FAULT, r"NVMLError\w*", ""),
    # Misuse of a collective is the program's own error, whichever library reports it.
    Signature(classes.PYTHON_ERROR, _TORCH, r"ncclInvalid(Usage|Argument)|op\.preamble\.length|Duplicate GPU detected"),
    # Errors of clients and of gloo that a restart does not mend.
    Signature(classes.CONFIGURATION, _TORCH, r"Unable to find (address for|interface)"),
    Signature(
        classes.PYTHON_ERROR, f"{_CLIENTS}|URLError", r"CERTIFICATE_VERIFY_FAILED|outgoing traffic has been disabled"
    ),
    # The node's ports, threads and descriptors; before peers, as the types are the same.
    Signature(
        classes.INFRASTRUCTURE,
        f"{_TORCH}|{_SYSTEM}|{_SOCKETS}",
        r"EADDRINUSE|Address already in use|failed to listen on any local network|can't start new thread"
        r"|Too many open files|received 0 items of ancdata|\[Errno 108\]",
    ),
    # Name resolution, and data that does not come; before peers, too.
    Signature(
        classes.SERVICE_UNAVAILABLE,
        f"{_TORCH}|{_CLIENTS}|{_SYSTEM}|{_SOCKETS}",
        r"Temporary failure in name resolution|Name or service not known|Name does not resolve|gai error: -|getaddrinfo"
        r"|No address associated with hostname|DataLoader timed out after",
    ),
    # Peers.
    Signature(classes.PEER_LOST, _OURS),
    Signature(classes.PEER_LOST, f"{_STREAMS}|TimeoutError", trace=_COLLECTIVES),
    Signature(
        classes.PEER_LOST,
        _TORCH,
        r"\bgloo/|Connection (closed|reset) by (remote )?peer|Broken pipe|Socket Timeout|Socket closed"
        r"|Watchdog caught collective operation timeout|NCCL (error|communicator was aborted)|nccl(Remote|System)Error"
        r"|nccl(Internal|UnhandledCuda)Error|client socket has (timed out|failed)|Timed out waiting|timed out after \d+"
        r"|wait timeout after|waiting for clients|failed to pass monitoredBarrier|No route to host"
        r"|failed to recv, got 0 bytes|Connection refused|Application timeout caused pair closure",
    ),
    Signature(
        classes.PEER_LOST,
        r"(Jax|Xla)RuntimeError|XGBoostError|LightGBMError",
        r"UNAVAILABLE|DEADLINE_EXCEEDED|Gloo|collective|[Ss]ocket|[Cc]onnect",
    ),
    Signature(classes.PEER_LOST, "DistNetworkError|DistBackendError|DistStoreError|HorovodInternalError"),
    # Ray gives a node 30 s to come up, whatever the machine has to do meanwhile.
    Signature(classes.PEER_LOST, "Exception", r"current node timed out during startup"),
    # A program beside a rank, such as a framework's tracker; its own last line stands at the end.
    # A version of it that knows no such argument, class or option is the same at the next attempt.
    Signature(
        classes.CONFIGURATION,
        "CompanionError",
        r"ModuleNotFoundError|ImportError|cannot be started|\b(Type|Attribute)Error: |ClassNotFound|No such option",
    ),
    Signature(classes.INFRASTRUCTURE, "CompanionError", r"Address already in use"),
    Signature(classes.PEER_LOST, "CompanionError"),
    # Starting.
    Signature(classes.CONFIGURATION, "StartFailed", r"\[Errno 7\]"),  # E2BIG: its variables are too large
    Signature(classes.INFRASTRUCTURE, "StartFailed"),
    # Services away from the node.
    Signature(classes.SERVICE_UNAVAILABLE, "StorageError"),  # the trainer's: an object store is away
    Signature(classes.SERVICE_UNAVAILABLE, _CLIENTS),
    Signature(classes.SERVICE_UNAVAILABLE, _STREAMS),
    Signature(classes.SERVICE_UNAVAILABLE, "TimeoutError|timeout", r"^$|timed out|\[Errno 110\]"),
    Signature(classes.SERVICE_UNAVAILABLE, "URLError", r"\[Errno (-\d|1\d\d)|timed out|\[SSL|EOF occurred|end closed"),
    Signature(classes.SERVICE_UNAVAILABLE, "ReadError|WriteError", r"^$|\[Errno 1\d\d\]|\[SSL|timed out|connection"),
    Signature(classes.SERVICE_UNAVAILABLE, "RetryError", r"exceeded|raised \w*(Connect|Timeout)"),
    Signature(
        classes.SERVICE_UNAVAILABLE,
        r"_InactiveRpcError|_MultiThreadedRendezvous|AioRpcError",
        r"StatusCode\.(UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED)",
    ),
    Signature(
        classes.SERVICE_UNAVAILABLE,
        _ANSWERS,
        r"^\s*(HTTP Error |<HttpError |\w+ error '|An error occurred \()?(408|425|429|50[02349]|5[23]\d)\b"
        r"|SlowDown|Internal ?(Server ?)?Error|Service ?Unavailable|Bad Gateway|Gateway Time-?out|Too ?Many ?Requests"
        r"|RequestTime(out|TooSkewed)|Throttl|RequestLimitExceeded|ExpiredToken",
    ),
    Signature(
        classes.SERVICE_UNAVAILABLE,
        _SYSTEM,
        r"\bStorageError: |\[Errno 1(04|10|11|12|13)\]|Host is down|No route to host|couldn't connect to 'http"
        r"|reduce your request rate|AWS Error (NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE"
        r"|REQUEST_TIMEOUT|REQUEST_EXPIRED|THROTTLING)",
    ),
    # The node and what is mounted on it.
    Signature(
        classes.INFRASTRUCTURE,
        _SYSTEM,
        r"\[Errno (5|6|11|16|19|23|24|30|70|71|99|100|101|103|105|107|116|117|121)\]|Input/output error"
        r"|Stale file handle|Transport endpoint is not connected|Remote I/O error|Network is unreachable"
        r"|Resource temporarily unavailable",
    ),
    Signature(classes.INFRASTRUCTURE, "SaveFailedError"),  # all was trained, and only the storage stands in the way
)


def class_of(error: ErrorReport) -> str:
    """Return the class of the first row of the table that matches; PythonError where none does."""
    for row in SIGNATURES:
        if not re.fullmatch(row.types, error.type[:200]):
            continue
        if row.words and not re.search(row.words, error.message[:4000], re.IGNORECASE):
            continue
        if not row.trace or re.search(row.trace, error.traceback):
            return row.failure_class
    return classes.PYTHON_ERROR
