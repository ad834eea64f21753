"""Which kernel's number is wrong: a model run kernel by kernel, each judged against a float64 reference.

    inputs ─▶ kernel 0 ─▶ kernel 1 ─▶ kernel 2 ─▶ …       the model's own code, on the model's own memory
                 │           │           │
              float64     float64     float64             its computation by NumPy, on this kernel's inputs
                 ▼           ▼           ▼
               right       wrong       right              kernel 1 is named, and not those after it

Every element of every result is looked at. The memory that a kernel must write is filled with NaN before, so
that what it leaves out is seen; all other memory must stay as it was; a kernel that gives other bits when it
is run again has a race. After a wrong kernel its results are put right, so that the next one is judged
fairly. Last, the model runs as a whole and must give the bits that its kernels gave one by one.

Start reading at `verify.verify`; `run.py` walks through the kernels, `kernel_verdict.py` says what is right.
"""
