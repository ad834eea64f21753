"""A worker that does on request what broken candidates do."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

from autotensor.runtime.workers.child_serving import serve


def handle(line: str) -> str:
    word, _, rest = line.partition(" ")
    match word:
        case "echo":
            return rest
        case "pid":
            return str(os.getpid())
        case "print":
            print(rest)
            return "printed"
        case "loop":
            while True:
                pass
        case "sleep":
            time.sleep(float(rest))
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(int(rest))
        case "raise":
            raise ValueError("candidate is broken")
        case "flood":
            block = "x" * 4096
            while True:
                sys.stdout.write(block)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            time.sleep(100)
        case "grandchild":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
            return str(child.pid)
        case "allocate":
            try:
                return str(len(bytearray(int(rest))))
            except MemoryError:
                return "MemoryError"
        case "close":
            for descriptor in range(3, 64):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            time.sleep(100)
    return "unknown"


if __name__ == "__main__":
    if sys.argv[1:] == ["broken"]:
        raise ImportError("no such toolkit")
    serve(handle)
