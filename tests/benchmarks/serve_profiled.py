"""The ``gateway`` command under cProfile, from SIGUSR1 on: the start is none of a call's time.

Arguments: where the profile goes, then the command's own.
"""

import cProfile
import signal
import sys
from types import FrameType

from gateway.__main__ import main

if __name__ == "__main__":
    output, *sys.argv[1:] = sys.argv[1:]
    profiler = cProfile.Profile()

    def begin(_number: int, _frame: FrameType | None) -> None:
        profiler.enable()

    signal.signal(signal.SIGUSR1, begin)
    try:
        main()
    finally:
        profiler.disable()
        profiler.dump_stats(output)
