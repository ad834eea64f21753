"""A function for programs without Python: this writes a C library, which examples/12_c_program.c calls.

    python examples/12_c_program.py [--keep FOLDER]

Writing the library needs no compiler. If a compiler is installed, the C program is built, and its result is
compared.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

import autotensor as at
from autotensor import te

options = argparse.ArgumentParser()
options.add_argument("--keep", metavar="FOLDER", help="where the library is left")
asked = options.parse_args()

X = te.placeholder((512, 512), name="X")
V = te.compute((510, 512), lambda i, j: (X[i, j] + X[i + 1, j] + X[i + 2, j]) / 3.0, name="V")
Y = te.compute((510, 510), lambda i, j: (V[i, j] + V[i, j + 1] + V[i, j + 2]) / 3.0, name="Y")

blur = at.build([X, Y], name="blur")
print("schedule:")
print(blur.source("trace"))
print("\nloops:")
print(blur.source("nest"))

with tempfile.TemporaryDirectory() as folder:
    library = at.write_c(blur, asked.keep or folder)
    print("\nlibrary:", ", ".join(f"{f.name} {f.stat().st_size} bytes" for f in library.files))
    picture = np.random.default_rng(0).random((512, 512), dtype=np.float32)
    compiler = shutil.which("cc")
    if compiler is None:
        print("no compiler here: the program is not built")
    else:
        source = Path(__file__).with_suffix(".c")
        program = library.object.with_name("program")
        words = [compiler, "-I", str(program.parent), str(source), str(library.object)]
        subprocess.run([*words, "-lm", "-pthread", "-o", str(program)], check=True)
        answer = subprocess.run([str(program)], input=picture.tobytes(), capture_output=True, check=True)
        assert answer.stdout == blur(picture).tobytes()
        print("the C program's answer has the same bits")

print(f"\ntime: {median(blur.time([picture])) * 1e6:.0f} µs")
