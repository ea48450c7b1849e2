"""Settings of the whole suite."""

from hypothesis import settings

# The same examples every time: a failure is one of the code, not of the draw.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

pytest_plugins = ["postgresql_server"]  # its fixtures
