"""A script that reports 40 steps. Its first process kills itself after step 30; the next one goes on from step 20."""

import os
import signal
import time

from trainmaster_trainer import session

attempt = int(os.environ["TRAINMASTER_ATTEMPT"])
for step in range(1 if attempt == 1 else 21, 41):
    time.sleep(0.1)
    session.report(step=step, total=40, loss=step + attempt / 10, odd=float("nan") if step == 5 else 0.5)
    if attempt == 1 and step == 30:
        time.sleep(float(os.environ.get("LINGER", "0")))
        os.kill(os.getpid(), signal.SIGKILL)
