"""A card made of NumPy: NVRTC's PTX is executed, all threads of many blocks as the lanes of arrays.

    ptx_text.py      PTX to instructions
    ptx_values.py    what arithmetic instructions compute
    ptx_warps.py     what a warp does together: ldmatrix, mma.sync, shfl.sync. By NVIDIA's published tables
    ptx_memory.py    global memory; shared memory, which reports races and copies on their way
    ptx_lanes.py     threads: who runs what, branches, barriers, cp.async          ◀ start here: `launch`
    stand_in/cupy/   the same behind CuPy's names, for a rehearsal of what needs a card

It says what NVIDIA's documents say that a card would do; it says nothing of how long that takes.
"""
