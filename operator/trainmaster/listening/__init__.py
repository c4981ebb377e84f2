"""Serving strangers: `Listener` in `listener`, its bounds in `limits`, one of its connections in `connection`."""
