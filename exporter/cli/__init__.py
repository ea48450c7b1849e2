"""The command ``export-profiles``."""
