"""What a collector answers is told in words, whatever code a gateway before it has made up."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

import pytest
from trainmaster_trainer.trackers.open_telemetry import Collector
from trainmaster_trainer.trackers.points import TrackedJob, TrackerError
from typing_extensions import override


class Gateway(http.server.BaseHTTPRequestHandler):
    """Refuses all with a code that no standard has."""

    def do_POST(self) -> None:
        """Answer."""
        self.send_response(520, "Web server is returning an unknown error")
        self.end_headers()

    @override
    def log_message(self, *_: object) -> None:
        return


def test_a_code_that_no_standard_has_is_told(tmp_path: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Gateway) as gateway:
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{gateway.server_port}"
        collector = Collector(TrackedJob("openTelemetry", {"url": url}, str(tmp_path), "team/job", "uid"))
        with pytest.raises(TrackerError, match="answers 520 Web server is returning an unknown error"):
            collector.begin("")
        gateway.shutdown()
