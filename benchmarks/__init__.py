"""Measurements of export-profiles against bare runs, peers, raw sqlite3 and raw networkx.

``python -m benchmarks`` runs them; ``benchmarks/README.md`` has the results.
"""
