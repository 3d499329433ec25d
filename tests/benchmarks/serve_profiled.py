"""The ``gateway`` command under cProfile. Arguments: where the profile goes, then the command's own."""

import cProfile
import sys

from gateway.__main__ import main

if __name__ == "__main__":
    output, *sys.argv[1:] = sys.argv[1:]
    profiler = cProfile.Profile()
    try:
        profiler.runcall(main)
    finally:
        profiler.dump_stats(output)
