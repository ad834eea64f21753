/* Calls a C library in the ways that its header allows; tests/codegen/library builds it with -DNAME=….

       caller run WEIGHTS THREADS TIMES INPUT… OUTPUT…      arrays as raw files; prints seconds
       caller many WEIGHTS THREADS CALLERS CALLS HANDLES    callers share handles; each answer is compared
       caller guarded WEIGHTS THREADS                       all arrays between pages that nobody may touch
       caller fork WEIGHTS THREADS                          a forked child calls, too

   With -DSHORT=n outputs are n bytes too small: an overrun, which whoever watches must find.
*/
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOIN(a, b) a##b
#define PASTE(a, b) JOIN(a, b)
#define THE(what) PASTE(NAME, what)
#define TEXT(a) #a
#define QUOTED(a) TEXT(a)
#define MOST 256
#ifndef SHORT
#define SHORT 0
#endif
#include HEADER

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(int status, const char *doing) {
  if (status == 0) return;
  printf("%s: %d %s\n", doing, status, THE(_error)(status));
  exit(3);
}

static int run(char **words) {
  double begun = now();
  const void *inputs[MOST];
  void *outputs[MOST];
  THE(_handle) *f;
  check(THE(_create)(&f, words[0], atoi(words[1])), "create");
  int times = atoi(words[2]), n = 0, k = 0;
  char **file = words + 3;
  for (; THE(_input)(n); n++) {
    void *data = malloc(THE(_input)(n)->bytes);
    FILE *in = fopen(*file++, "rb");
    if (!in || fread(data, 1, THE(_input)(n)->bytes, in) != THE(_input)(n)->bytes) return 4;
    fclose(in);
    inputs[n] = data;
  }
  for (; THE(_output)(k); k++) outputs[k] = malloc(THE(_output)(k)->bytes - SHORT);
  check(THE(_run)(f, inputs, outputs), "run");
  double first = now();
  double least = 1e9;
  for (int i = 0; i < times; i++) {
    double start = now();
    check(THE(_run)(f, inputs, outputs), "run");
    double took = now() - start;
    if (took < least) least = took;
  }
  for (n = 0; n < k; n++) {
    FILE *out = fopen(*file++, "wb");
    if (!out || fwrite(outputs[n], 1, THE(_output)(n)->bytes, out) != THE(_output)(n)->bytes) return 5;
    fclose(out);
    free(outputs[n]);
  }
  for (n = 0; THE(_input)(n); n++) free((void *)inputs[n]);
  THE(_destroy)(f);
  printf("%.9f %.9f\n", first - begun, least);
  return 0;
}

static THE(_handle) *handles[MOST];
static const void *shared_inputs[MOST];
static void *right[MOST];
static int calls, n_handles;

static void *caller(void *number) {
  size_t me = (size_t)number, wrong = 0;
  void *outputs[MOST];
  for (int k = 0; THE(_output)(k); k++) outputs[k] = malloc(THE(_output)(k)->bytes - SHORT);
  for (int i = 0; i < calls; i++) {
    check(THE(_run)(handles[(me + (size_t)i) % (size_t)n_handles], shared_inputs, outputs), "run");
    for (int k = 0; THE(_output)(k); k++) {
      wrong += memcmp(outputs[k], right[k], THE(_output)(k)->bytes) != 0;
      memset(outputs[k], 0xff, THE(_output)(k)->bytes);
    }
  }
  for (int k = 0; THE(_output)(k); k++) free(outputs[k]);
  return (void *)wrong;
}

static int many(char **words) {
  int callers = atoi(words[2]);
  calls = atoi(words[3]);
  n_handles = atoi(words[4]);
  for (int h = 0; h < n_handles; h++) check(THE(_create)(&handles[h], words[0], atoi(words[1])), "create");
  for (int n = 0; THE(_input)(n); n++) shared_inputs[n] = calloc(1, THE(_input)(n)->bytes);
  for (int k = 0; THE(_output)(k); k++) right[k] = malloc(THE(_output)(k)->bytes);
  check(THE(_run)(handles[0], shared_inputs, right), "run");
  pthread_t threads[MOST];
  for (size_t c = 0; c < (size_t)callers; c++) pthread_create(&threads[c], NULL, caller, (void *)c);
  size_t wrong = 0;
  for (int c = 0; c < callers; c++) {
    void *one;
    pthread_join(threads[c], &one);
    wrong += (size_t)one;
  }
  for (int n = 0; THE(_input)(n); n++) free((void *)shared_inputs[n]);
  for (int k = 0; THE(_output)(k); k++) free(right[k]);
  for (int h = 0; h < n_handles; h++) THE(_destroy)(handles[h]);
  printf("%zu wrong of %d\n", wrong, callers * calls);
  return wrong != 0;
}

/* Memory whose first byte, or last one, is beside a page that nobody may touch; filled by `fill`. */
static void *fenced(size_t bytes, int at_end, int fill) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  char *all = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED || mprotect(all + page, whole, PROT_READ | PROT_WRITE)) exit(6);
  memset(all + page, fill, whole);
  return all + page + (at_end ? whole - bytes : 0);
}

static int guarded(char **words) {
  const void *inputs[MOST];
  void *outputs[2][MOST];
  THE(_handle) *f;
  check(THE(_create)(&f, words[0], atoi(words[1])), "create");
  size_t wrong = 0;
  for (int at_end = 0; at_end < 2; at_end++) {
    for (int n = 0; THE(_input)(n); n++) inputs[n] = fenced(THE(_input)(n)->bytes, at_end, 0);
    for (int k = 0; THE(_output)(k); k++)
      outputs[at_end][k] = fenced(THE(_output)(k)->bytes - SHORT, at_end, at_end ? 0xff : 0x77);
    check(THE(_run)(f, inputs, outputs[at_end]), "run");
  }
  for (int k = 0; THE(_output)(k); k++)
    wrong += memcmp(outputs[0][k], outputs[1][k], THE(_output)(k)->bytes) != 0;
  THE(_destroy)(f);
  printf("%zu wrong\n", wrong);
  return wrong != 0;
}

static int forked(char **words) {
  const void *inputs[MOST];
  void *outputs[MOST];
  THE(_handle) *f;
  check(THE(_create)(&f, words[0], atoi(words[1])), "create");
  for (int n = 0; THE(_input)(n); n++) inputs[n] = calloc(1, THE(_input)(n)->bytes);
  for (int k = 0; THE(_output)(k); k++) outputs[k] = malloc(THE(_output)(k)->bytes);
  check(THE(_run)(f, inputs, outputs), "run");
  fflush(stdout);
  pid_t child = fork();
  for (int i = 0; i < 100; i++) check(THE(_run)(f, inputs, outputs), "run after fork");
  if (child == 0) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (status && fgets(line, sizeof line, status))
      if (!strncmp(line, "Threads:", 8)) printf("child %s", line);
    fflush(stdout);
    _exit(0);
  }
  int how = -1;
  waitpid(child, &how, 0);
  return how != 0;
}

int main(int count, char **words) {
  if (count > 2 && !strcmp(words[1], "run")) return run(words + 2);
  if (count > 2 && !strcmp(words[1], "many")) return many(words + 2);
  if (count > 2 && !strcmp(words[1], "guarded")) return guarded(words + 2);
  if (count > 2 && !strcmp(words[1], "fork")) return forked(words + 2);
  return 2;
}
