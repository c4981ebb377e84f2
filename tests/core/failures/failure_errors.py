"""Python errors as ranks report them: real messages of torch, gloo, NCCL, CUDA, CPython and clients, with labels.

The texts are those that people quote in bug reports; addresses and file names are theirs, shortened.
"""

from tests.core.failures.failure_labels import (
    APART,
    BUG,
    DEVICE,
    DEVICE_MEMORY,
    DISK,
    ECHO,
    MEMORY,
    NAN,
    READER,
    ROT,
    WEATHER,
    WRONG,
    Label,
)

NCCL = "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268"
GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp"

ERRORS: list[tuple[str, str, Label]] = [
    # The program's own.
    ("ValueError", "Expected input batch_size (64) to match target batch_size (32).", BUG),
    ("IndexError", "index 50257 is out of range", BUG),
    ("KeyError", "'labels'", BUG),
    ("TypeError", "forward() missing 1 required positional argument: 'mask'", BUG),
    ("ZeroDivisionError", "division by zero", BUG),
    ("AssertionError", "", BUG),
    ("ModuleNotFoundError", "No module named 'apex'", WRONG),
    ("SyntaxError", "invalid syntax", WRONG),
    ("IndentationError", "unexpected indent", WRONG),
    ("ImportError", "libcudnn.so.9: cannot open shared object file: No such file or directory", BUG),
    ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/train.bin'", BUG),
    ("PermissionError", "[Errno 13] Permission denied: '/data/train.bin'", BUG),
    ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (64x784 and 785x10)", BUG),
    (
        "RuntimeError",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        BUG,
    ),
    (
        "RuntimeError",
        "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported",
        BUG,
    ),
    ("AcceleratorError", "CUDA error: an illegal memory access was encountered", BUG),
    ("RuntimeError", "Expected to have finished reduction in the prior iteration before starting a new one.", BUG),
    ("RuntimeError", "Function 'MulBackward0' returned nan values in its 0th output.", BUG),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", BUG),
    ("RuntimeError", 'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.weight".', BUG),
    ("DistBackendError", f"{NCCL}, invalid usage, NCCL version 2.17.1\nncclInvalidUsage: Duplicate GPU detected", BUG),
    (
        "RuntimeError",
        (
            "[enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= "
            "op.nbytes. 20 vs 8"
        ),
        BUG,
    ),
    ("RecursionError", "maximum recursion depth exceeded", BUG),
    ("UnicodeDecodeError", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte", BUG),
    ("JSONDecodeError", "Expecting value: line 1 column 1 (char 0)", BUG),
    ("StopIteration", "", BUG),
    ("NotImplementedError", "Could not run 'aten::empty.memory_format' with arguments from the 'XLA' backend.", BUG),
    # Words of others in a user's mouth.
    ("ValueError", "unknown backend 'gloo', connection reset by peer expected", BUG),
    ("ValueError", "CUDA out of memory is not what this is", BUG),
    ("KeyError", "'NCCL error'", BUG),
    ("AssertionError", "No space left on device", BUG),
    ("RuntimeError", "my backend is gloo and I do not like it", BUG),
    ("ValueError", "loss is nan", BUG),
    ("ValueError", "503 Service Unavailable", BUG),
    ("ValueError", "[Errno 110] Connection timed out", BUG),
    ("KeyError", "'StorageError: SlowDown'", BUG),
    ("TimeoutError", "my own barrier had no luck", BUG),
    ("ReadError", "not a gzip file", BUG),
    ("RetryError", "RetryError[<Future at 0x7f state=finished raised ValueError>]", BUG),
    ("Exception", "Temporary failure in name resolution", BUG),
    ("MyHangError", "hung", BUG),
    # What the trainer says itself.
    ("NonFiniteLossError", "the loss of step 73 is nan", NAN),
    ("NonFiniteLossError", "the loss of step 73 is inf", NAN),
    ("CopiesDifferError", "The ranks' copies of the parameter 0.weight have become different", APART),
    ("CorruptCheckpointError", "step 50: shard-00000.safetensors has another SHA-256 than the manifest says", ROT),
    ("ConfigurationError", "spec.training.task: no module named 'mine'", WRONG),
    # Memory.
    (
        "OutOfMemoryError",
        (
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
            "which 1.12 GiB is free."
        ),
        DEVICE_MEMORY,
    ),
    (
        "RuntimeError",
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total capacity)",
        DEVICE_MEMORY,
    ),
    ("RuntimeError", "CUDA error: out of memory", DEVICE_MEMORY),
    ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", DEVICE_MEMORY),
    ("RuntimeError", "HIP out of memory. Tried to allocate 256.00 MiB.", DEVICE_MEMORY),
    (
        "DistBackendError",
        (
            f"{NCCL}, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\n"
            "Last error:\nCuda failure 2 'out of memory'"
        ),
        DEVICE_MEMORY,
    ),
    ("MemoryError", "Unable to allocate 14.9 GiB for an array with shape (2000000000,)", MEMORY),
    (
        "RuntimeError",
        (
            "[enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory: you tried to "
            "allocate 4398046511104 bytes. Error code 12 (Cannot allocate memory)"
        ),
        MEMORY,
    ),
    ("RuntimeError", "DataLoader worker (pid 4021) is killed by signal: Killed. ", READER),
    ("RuntimeError", "DataLoader worker (pid(s) 4024, 4025) exited unexpectedly", READER),
    ("RuntimeError", "DataLoader worker (pid 7) is killed by signal: Segmentation fault. ", READER),
    ("RuntimeError", "DataLoader worker (pid 7) exited unexpectedly with exit code 3. Details are lost", READER),
    (
        "RuntimeError",
        (
            "DataLoader worker (pid 31) is killed by signal: Bus error. It is possible that dataloader's "
            "workers are out of shared memory."
        ),
        READER,
    ),
    (
        "RuntimeError",
        ("unable to open shared memory object </torch_29919_1396182366> in read-write mode: Too many open files (24)"),
        MEMORY,
    ),
    ("RuntimeError", "unable to mmap 1024 bytes from file </torch_1>: Cannot allocate memory (12)", MEMORY),
    ("OSError", "[Errno 12] Cannot allocate memory", MEMORY),
    # A full /dev/shm.
    ("RuntimeError", "unable to write to file </torch_29919_1396182366>: No space left on device (28)", MEMORY),
    (
        "DistBackendError",
        (
            f"{NCCL}, unhandled system error, NCCL version 2.21.5\nncclSystemError: System call failed.\n"
            "Last error:\nError while creating shared memory segment /dev/shm/nccl-XKFAFO (size 9637888)"
        ),
        MEMORY,
    ),
    ("DistBackendError", "Call to posix_fallocate of /dev/shm/nccl-1 failed : No space left on device (28)", MEMORY),
    ("OSError", "[Errno 28] No space left on device: '/dev/shm/data'", MEMORY),
    # Storage.
    ("OSError", "[Errno 28] No space left on device: '/checkpoints/step-00000050/shard-00000.tmp'", DISK),
    ("OSError", "[Errno 122] Disk quota exceeded", DISK),
    (
        "RuntimeError",
        (
            "[enforce fail at inline_container.cc:595] . PytorchStreamWriter failed writing file data/7: file "
            "write failed"
        ),
        DISK,
    ),
    ("SafetensorError", 'Error while serializing: IoError(Os { code: 28, message: "No space left on device" })', DISK),
    (
        "ClientError",
        (
            "An error occurred (XMinioStorageFull) when calling the PutObject operation: Storage backend has "
            "reached its minimum free drive threshold."
        ),
        DISK,
    ),
    ("SaveFailedError", "rank 0: [Errno 28] No space left on device", DISK),
    ("StorageError", "s3://b/job: ClientError: An error occurred (QuotaExceeded) when calling PutObject", DISK),
    # Devices.
    (
        "RuntimeError",
        "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously",
        DEVICE,
    ),
    ("AcceleratorError", "CUDA error: uncorrectable NVLink error detected during the execution", DEVICE),
    ("RuntimeError", "CUDA error: unspecified launch failure", DEVICE),
    (
        "RuntimeError",
        (
            "CUDA error: all CUDA-capable devices are busy or unavailable\nCUDA-capable device(s) is/are busy or "
            "unavailable"
        ),
        DEVICE,
    ),
    ("RuntimeError", "No CUDA GPUs are available: no CUDA-capable device is detected", DEVICE),
    ("RuntimeError", "CUDA unknown error - this may be due to an incorrectly set up environment", DEVICE),
    ("RuntimeError", "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", DEVICE),
    ("RuntimeError", "Found no NVIDIA driver on your system.", DEVICE),
    ("RuntimeError", "No CUDA GPUs are available", DEVICE),
    ("ValueError", "ProcessGroupNCCL is only supported with GPUs, no GPUs found!", DEVICE),
    ("AssertionError", "Torch not compiled with CUDA enabled", WRONG),
    ("NVMLError_DriverNotLoaded", "Driver Not Loaded", DEVICE),
    ("NVMLError_LibRmVersionMismatch", "Driver/library version mismatch", DEVICE),
    (
        "DistBackendError",
        (f"{NCCL}, unhandled cuda error\nLast error:\nCuda failure 'uncorrectable ECC error encountered'"),
        DEVICE,
    ),
    # Peers.
    ("RuntimeError", f"{GLOO}/pair.cc:534] Connection closed by peer [127.0.0.1]:10895", ECHO),
    ("RuntimeError", f"{GLOO}/pair.cc:589] Read error [192.168.70.92]:25266: Connection reset by peer", ECHO),
    ("RuntimeError", f"{GLOO}/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete", ECHO),
    ("RuntimeError", "Application timeout caused pair closure", ECHO),
    ("RuntimeError", "Connection closed by peer [10.0.0.2]:1234", ECHO),
    ("RuntimeError", "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 30000 ms", ECHO),
    ("RuntimeError", "Broken pipe", ECHO),
    ("RuntimeError", "Socket Timeout", ECHO),
    (
        "DistBackendError",
        (
            f"{NCCL}, remote process exited or there was a network error, NCCL version 2.21.5\n"
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
            "Last error:\nsocketProgressOpt: Call to recv from 172.16.0.3<33759> failed : Connection reset by peer"
        ),
        ECHO,
    ),
    (
        "DistBackendError",
        (
            f"{NCCL}, internal error, NCCL version 2.14.3\nncclInternalError: Internal check failed.\nLast "
            "error:\nNet : Connection closed by remote peer user<50260>"
        ),
        ECHO,
    ),
    (
        "DistBackendError",
        (
            f"{NCCL}, unhandled system error, NCCL version 2.18.6\nncclSystemError: System call failed.\n"
            "Last error:\nsocketStartConnect: Connect to 192.168.19.14<52822> failed : No route to host"
        ),
        ECHO,
    ),
    ("RuntimeError", "NCCL communicator was aborted on rank 1.", ECHO),
    (
        "RuntimeError",
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)",
        ECHO,
    ),
    (
        "DistNetworkError",
        "The client socket has timed out after 600000ms while trying to connect to (10.0.0.1, 29500).",
        ECHO,
    ),
    (
        "DistNetworkError",
        ("Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"),
        ECHO,
    ),
    (
        "DistNetworkError",
        "The client socket has failed to connect to [worker-0]:29500 (errno: 111 - Connection refused).",
        ECHO,
    ),
    ("DistStoreError", "Timed out after 901 seconds waiting for clients. 1/2 clients joined.", ECHO),
    ("DistStoreError", "wait timeout after 300000ms, keys: /default_pg/0//cpu//0/rank_1", ECHO),
    ("PeerLostError", "worker-1 does not answer", ECHO),
    ("MemoryPeerLostError", "rank 1 of this group, which shares memory with this rank, has ended", ECHO),
    # Everything around.
    (
        "DistNetworkError",
        (
            "The server socket has failed to listen on any local network address. port: 29500, useIpv6: "
            "false, code: -98, name: EADDRINUSE, message: address already in use"
        ),
        WEATHER,
    ),
    ("OSError", "[Errno 98] Address already in use", WEATHER),
    ("OSError", "[Errno 6] No such device or address: '/dev/fuse'", WEATHER),
    ("OSError", "[Errno 16] Device or resource busy: '.nfs0000000000a1'", WEATHER),
    ("OSError", "[Errno 19] No such device", WEATHER),
    ("OSError", "[Errno 30] Read-only file system: '/data/log'", WEATHER),
    ("OSError", "[Errno 71] Protocol error: '/data/shard-7.tar'", WEATHER),
    ("OSError", "[Errno 99] Cannot assign requested address", WEATHER),
    ("OSError", "[Errno 101] Network is unreachable", WEATHER),
    ("OSError", "[Errno 105] No buffer space available", WEATHER),
    ("OSError", "[Errno 117] Structure needs cleaning: '/data'", WEATHER),
    ("OSError", "[Errno 121] Remote I/O error", WEATHER),
    ("BrokenPipeError", "[Errno 108] Cannot send after transport endpoint shutdown", WEATHER),
    ("RuntimeError", "can't start new thread", WEATHER),
    ("RuntimeError", "received 0 items of ancdata", WEATHER),
    ("RuntimeError", f"{GLOO}/pair.cc:209] socket: Too many open files", WEATHER),
    ("SaveFailedError", "rank 0: [Errno 116] Stale file handle", WEATHER),
    ("SaveFailedError", "rank 3: ValueError: what is this", WEATHER),
    ("OSError", "[Errno 116] Stale file handle: '/checkpoints'", WEATHER),
    ("OSError", "[Errno 5] Input/output error", WEATHER),
    ("OSError", "[Errno 107] Transport endpoint is not connected: '/data'", WEATHER),
    ("OSError", "[Errno 24] Too many open files", WEATHER),
    ("BlockingIOError", "[Errno 11] Resource temporarily unavailable", WEATHER),
    ("StartFailed", "the process could not be started: [Errno 11] Resource temporarily unavailable", WEATHER),
    ("StartFailed", "the process could not be started: [Errno 7] Argument list too long: '/usr/bin/python3'", WRONG),
    ("StartFailed", "the warm parent does not answer", WEATHER),
    ("RuntimeError", f"{GLOO}/device.cc:208] Unable to find address for: eth1", WRONG),
    ("EndedEarly", "exit code 0 before its training was over", BUG),
]
