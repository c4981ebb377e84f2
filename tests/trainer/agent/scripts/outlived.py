"""A script whose thread is in a function of torch's while the interpreter ends, and wants it back just then."""

import threading
import time
from datetime import timedelta

from torch.distributed import HashStore  # type: ignore[attr-defined]


class Slow:
    """Takes its time at the end, in which the thread's function returns."""

    def __del__(self) -> None:
        time.sleep(1.5)


def wait_in_vain() -> None:
    """Wait in torch for what does not come."""
    HashStore().wait(["never"], timedelta(seconds=1))


slow = Slow()
threading.Thread(target=wait_in_vain, daemon=True).start()
