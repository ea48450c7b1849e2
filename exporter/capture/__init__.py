"""The one pass over a model: calls, operators and storages, observed at once."""
