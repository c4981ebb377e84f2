"""For all tests: hypothesis never judges by the clock, which other work moves; and Ctrl-C can be tested anywhere."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell starts its background jobs with SIGINT ignored, and what we start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
