"""Zoos: where models come from."""
