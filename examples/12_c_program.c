/* A blurred picture, in C: 512x512 floats from standard input, 510x510 to standard output.
   python examples/12_c_program.py --keep blur
   cc -I blur examples/12_c_program.c blur/blur.o -lm -pthread -o blur/program */
#include <stdio.h>
#include "blur.h"

static float picture[512 * 512], blurred[510 * 510];

int main(void) {
  const void *inputs[BLUR_INPUTS] = {picture};
  void *outputs[BLUR_OUTPUTS] = {blurred};
  blur_handle *blur;
  int status = blur_create(&blur, NULL, 0); /* no weights; as many threads as there are cores for us */
  if (fread(picture, 1, sizeof picture, stdin) != sizeof picture) return 2;
  if (status == 0) status = blur_run(blur, inputs, outputs);
  if (status != 0) return fprintf(stderr, "%s\n", blur_error(status)), 1;
  blur_destroy(blur);
  return fwrite(blurred, 1, sizeof blurred, stdout) != sizeof blurred;
}
