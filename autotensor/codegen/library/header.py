"""The texts of a C library: its header, and a program of 20 lines that calls it."""

from __future__ import annotations

from autotensor.base.machine import environment_versions
from autotensor.codegen.library.shared_threads import NUMBERS
from autotensor.codegen.library.tables import workspace_bytes
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.signature import Signature

LIBRARIES = "-lm -pthread"  # libraries that a program is linked with, besides libc

_HEADER = """\
/* {signature}

   {made}, version {version}, for {triple} {cpu}. C99 or C++; link with {libraries}.

       {name}_handle *f;
       int status = {name}_create(&f, {file}, 0);
       if (status == 0) status = {name}_run(f, inputs, outputs);
       if (status != 0) puts({name}_error(status));
       {name}_destroy(f);

   Every function may be called by any number of threads at once, with one handle or several; only destroy
   must come after all calls with its handle. Arrays are row-major and need the alignment of their elements
   only. Nothing is written but the outputs. */

#ifndef {NAME}_H
#define {NAME}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#ifndef AUTOTENSOR_ARRAY
#define AUTOTENSOR_ARRAY
typedef struct autotensor_array {{ /* what one input or output is */
  const char *name;
  const char *dtype; /* "float32", "int64", ... */
  int32_t rank;
  const int64_t *shape; /* `rank` extents */
  size_t bytes;
}} autotensor_array;
#endif

#define {NAME}_INPUTS {inputs}
#define {NAME}_OUTPUTS {outputs}

typedef struct {name}_handle {name}_handle;

/* Input or output number n, from 0 on; NULL if there is none. In the order of `run`:
{table} */
const autotensor_array *{name}_input(int n);
const autotensor_array *{name}_output(int n);

/* A handle on the function. weights: {weights}.
   threads: at most so many for one call, up to {most}; 0: the cores that the calling thread may run on
   and has time for. Returns 0, or a status, and then *handle is NULL. */
int {name}_create({name}_handle **handle, const char *weights, int threads);

/* Computes all outputs. Returns 0, or a status, and then no output was written. Calls at once with one handle
   share its weights, and each takes {workspace} bytes of its own
   ({cores} threads), which are kept for later calls. */
int {name}_run({name}_handle *handle, const void *const *inputs, void *const *outputs);

/* Gives back all memory of a handle; NULL is fine. The threads stay, for other handles of the process. */
void {name}_destroy({name}_handle *handle);

/* What a status means, in one sentence; never NULL. */
const char *{name}_error(int status);

#ifdef __cplusplus
}}
#endif
#endif
"""

_EXAMPLE = """\
/* cc {name}_example.c {name}.o {libraries} -o {name}_example && ./{name}_example */
#include <stdio.h>
#include <stdlib.h>
#include "{name}.h"

int main(void) {{
  {name}_handle *f;
  const void *inputs[{NAME}_INPUTS + 1];
  void *outputs[{NAME}_OUTPUTS];
  int status = {name}_create(&f, {file}, 0);
  for (int n = 0; n < {NAME}_INPUTS; n++) inputs[n] = calloc(1, {name}_input(n)->bytes);
  for (int n = 0; n < {NAME}_OUTPUTS; n++) outputs[n] = malloc({name}_output(n)->bytes);
  if (status == 0) status = {name}_run(f, inputs, outputs);
  if (status != 0) return fprintf(stderr, "%s\\n", {name}_error(status)), 1;
  for (int n = 0; n < {NAME}_OUTPUTS; n++)
    printf("%s: %zu bytes of %s\\n", {name}_output(n)->name, {name}_output(n)->bytes,
           {name}_output(n)->dtype);
  {name}_destroy(f);
  return 0;
}}
"""


def header(artifact: Artifact, name: str, triple: str, weights: str) -> str:
    """The text of the header. weights: the name of the weights' file, "" if there is none."""
    inputs, outputs = artifact.role("input"), artifact.role("output")
    return _HEADER.format(
        **_names(name, weights),
        signature=_comment(f"{name}: {Signature(inputs, outputs)}"),
        made=made_from(artifact.name),
        version=environment_versions().get("autotensor", ""),
        triple=triple,
        cpu=artifact.target.arch or "",
        inputs=len(inputs),
        outputs=len(outputs),
        table="\n".join([*_rows("inputs", inputs), *_rows("outputs", outputs)]),
        weights=_comment(f"the path of {weights}" if weights else "not looked at: there are none"),
        most=NUMBERS["MOST_TEAM"],
        workspace=workspace_bytes(artifact, artifact.target.num_cores),
        cores=artifact.target.num_cores,
    )


def made_from(model: str) -> str:
    """A line of the header that tells the libraries of different models apart."""
    return f"Made by autotensor from {_comment(model)}"


def example(name: str, weights: str) -> str:
    """A program that calls the function on zeros."""
    return _EXAMPLE.format(**_names(name, weights))


def _names(name: str, weights: str) -> dict[str, str]:
    file = f'"{weights}"' if weights else "NULL"
    return {"name": name, "NAME": name.upper(), "file": file, "libraries": LIBRARIES}


def _rows(role: str, specs: tuple[ArgSpec, ...]) -> list[str]:
    return [_comment(f"     {role}[{n}]  {spec}") for n, spec in enumerate(specs)]


def _comment(text: str) -> str:
    """The text in a form that cannot end a comment of C. It may hold names that a model's author has
    chosen."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\n", " ")


__all__ = ["LIBRARIES", "example", "header", "made_from"]
