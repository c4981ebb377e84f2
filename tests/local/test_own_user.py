"""What a local run listens at for its agents admits its own user only."""

import asyncio
import contextlib
import dataclasses
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from trainmaster.intake import Intake, Speaker
from trainmaster.local.local_run import INTAKE, served
from trainmaster.local.scratch import Scratch
from trainmaster.wire import codec
from trainmaster.wire.messages import Orders
from trainmaster_trainer.agent.reporter import OperatorConnection, ReportRefusedError

from tests.builders import a_heartbeat

BEAT = codec.encode(dataclasses.replace(a_heartbeat(), pod_uid="a", hold=False))
TRY = "import os, socket, sys; os.setuid(int(sys.argv[1])); socket.socket(socket.AF_UNIX).connect(sys.argv[2])"
NOBODY = 65534


async def anybody(_token: str) -> Speaker:
    return Speaker("", lambda _: None)


async def test_agents_call_in_at_a_socket_in_the_runs_private_folder(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    with Scratch() as scratch:
        async with served(Intake(anybody, lambda _: None).application(), scratch.path / INTAKE) as url:
            connection = OperatorConnection(url, str(token))
            for _ in range(2):  # on one connection
                answer = await asyncio.to_thread(connection.exchange, BEAT, 10.0)
                assert answer
                assert codec.decode(Orders, answer).verb == "Wait"
            with pytest.raises(ReportRefusedError, match="400"):
                await asyncio.to_thread(connection.exchange, b"{}", 10.0)
            assert (scratch.path / INTAKE).is_socket()
            assert stat.S_IMODE(scratch.path.stat().st_mode) == 0o700
            if os.getuid() == 0:  # who is not root cannot be somebody else
                command = [sys.executable, "-c", TRY, str(NOBODY), str(scratch.path / INTAKE)]
                tried = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
                assert "PermissionError" in tried.stderr
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as late, pytest.raises(OSError, match=r"refused|No s"):
            late.connect(str(scratch.path / INTAKE))
