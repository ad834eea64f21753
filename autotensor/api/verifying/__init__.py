"""Finds wrong kernels: a model runs kernel by kernel, and each is compared with a float64 reference.

    inputs ─▶ kernel 0 ─▶ kernel 1 ─▶ kernel 2 ─▶ …       the model's own code, on the model's own memory
                 │           │           │
              float64     float64     float64             its computation by NumPy, on this kernel's inputs
                 ▼           ▼           ▼
               right       wrong       right              kernel 1 is named, and not those after it

Every element of every result is checked. The memory that a kernel must write is filled with NaN before, so
that elements that the kernel leaves out are seen. All other memory must stay as it was. A kernel that gives
other bits when it runs again has a race. After a wrong kernel, its results are corrected, so that the next
kernel is judged fairly. Last, the model runs as a whole and must give the same bits as its single kernels.

Start reading at `verify.verify`; `run.py` walks through the kernels, `kernel_verdict.py` says what is right.
"""
