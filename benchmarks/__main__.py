"""Run benchmarks: ``python -m benchmarks [NAME ...] [--rounds N] [--write]``."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import traceback
from importlib import import_module

from benchmarks import report

# Which module has each benchmark: what one does not need is not imported for it.
BENCHMARKS = {
    "capture": "capture",
    "peers": "peers",
    "command": "zoo",
    "memory": "zoo",
    "store": "database",
    "graph": "database",
    "decoder": "scale",
    "depth": "scale",
}


def main() -> None:
    """Run the named benchmarks, print what they find, and write it down if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=5, help="repetitions (default: 5)")
    parser.add_argument("--write", action="store_true", help="put the results into README.md")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    if options.rounds < 1:
        parser.error(f"{options.rounds} rounds are none")
    print(report.machine(), flush=True)
    failed = []
    for name in options.names or BENCHMARKS:
        print(f"\n{name} ({report.circumstances()})\n", flush=True)
        when = report.circumstances()
        benchmark = getattr(import_module(f"benchmarks.{BENCHMARKS[name]}"), name)
        try:
            findings = dataclasses.replace(benchmark(options.rounds), circumstances=when)
        except Exception:  # noqa: BLE001 - the others can still be measured
            traceback.print_exc()
            failed.append(name)
            continue
        report.show(findings)
        if options.write:
            report.write(findings)
    if failed:
        sys.exit(f"no figures for: {', '.join(failed)}")


if __name__ == "__main__":
    main()
