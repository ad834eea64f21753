"""A card simulated in NumPy: it executes NVRTC's PTX, with all threads of many blocks as the lanes of arrays.

    ptx_text.py      PTX to instructions
    ptx_kernels.py   basic blocks of a kernel, and other facts of its code
    ptx_values.py    results of arithmetic instructions
    ptx_warps.py     instructions of a whole warp: ldmatrix, mma.sync, shfl.sync, by NVIDIA's tables
    ptx_memory.py    global memory; shared memory, which reports races and unfinished copies
    ptx_lanes.py     threads, branches, barriers, cp.async                         ◀ start here: `launch`
    stand_in/cupy/   the same with CuPy's names, for a rehearsal of programs that need a card

It computes the results of a card according to NVIDIA's documents. Its times mean nothing.
"""
