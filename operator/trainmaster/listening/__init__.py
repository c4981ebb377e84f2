"""Serve untrusted clients: `Listener` in `listener`, its bounds in `limits`, one connection in `http_connection`."""
