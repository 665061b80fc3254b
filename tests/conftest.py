"""Hypothesis profiles: dev (20 examples) by default, ci (30) where CI is set; HYPOTHESIS_PROFILE chooses.

A shell that starts the tests in the background lets them ignore SIGINT, and with them the commands that they
start and interrupt; here it is heard again.
"""

import os
import signal

from hypothesis import HealthCheck, settings

COMMON = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("short", COMMON, max_examples=7)
settings.register_profile("dev", COMMON, max_examples=20)
settings.register_profile("ci", COMMON, max_examples=30)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
