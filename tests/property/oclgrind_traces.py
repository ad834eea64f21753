"""Runs small random GPU traces on Oclgrind, OpenCL's simulator; test_gpu_under_oclgrind.py starts it.

    python oclgrind_traces.py 0 10      seeds 0 to 9; exit code 1 when an answer is wrong

Oclgrind itself reports races, indices out of bounds and divergent barriers in the file
that OCLGRIND_LOG names.
"""

from __future__ import annotations

import random
import sys

from gpu_traces import gpu_trace
from random_dags import random_dag
from test_gpu_on_opencl import check_on_device

TARGET = "opencl -platform=Oclgrind"

if __name__ == "__main__":
    first, count = (int(a) for a in sys.argv[1:])
    for seed in range(first, first + count):
        rng = random.Random(seed)
        dag = random_dag(rng, 2)
        check_on_device(dag, gpu_trace(rng, dag, 4), seed, TARGET)
