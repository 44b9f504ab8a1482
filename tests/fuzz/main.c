/* Runs a fuzz target without a fuzzer: on every file of its corpus, and on truncated and slightly
 * changed copies of them. The changes are deterministic, so a failure can be reproduced.
 *
 * fuzz_X [FILE|DIR ...]; without arguments the corpus tests/fuzz/corpus/X of the source tree. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX (1U << 20)
#define CUTS 64     /* truncated copies of one input, at most */
#define CHANGES 256 /* changed copies of one input */
#define SKIPPED 77

static size_t n_inputs;

static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size > 0 ? size : 1); /* AddressSanitizer guards its end */
    if (exact == NULL)
        abort();
    memcpy(exact, data, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    n_inputs++;
}

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

static void run_changed(uint8_t *data, size_t size)
{
    static const uint8_t nasty[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '\n', '-', ',', '[', '9'};
    uint32_t state = (uint32_t)size;
    for (int i = 0; size > 0 && i < CHANGES; i++) {
        size_t at = next(&state) % size;
        uint8_t old = data[at];
        uint32_t how = next(&state);
        data[at] = how % 2 == 0 ? nasty[how / 2 % sizeof(nasty)]
                                : (uint8_t)(old ^ 1U << how / 2 % 8);
        run_one(data, size);
        if (i % 4 != 0) /* a quarter of the changes stays and adds up */
            data[at] = old;
    }
}

static int run_file(const char *path)
{
    FILE *f = fopen(path, "re");
    uint8_t *data = malloc(INPUT_MAX);
    if (f == NULL || data == NULL) {
        fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
        exit(1);
    }
    size_t size = fread(data, 1, INPUT_MAX, f);
    fclose(f);
    run_one(data, size);
    for (size_t i = 0; i < CUTS; i++)
        if (size > CUTS || i < size)
            run_one(data, size > CUTS ? size * i / CUTS : i);
    run_changed(data, size);
    free(data);
    return 1;
}

static int run_path(const char *path)
{
    struct dirent **names = NULL;
    struct stat st;
    int n = 0;
    if (stat(path, &st) < 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return run_file(path);
    int total = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < total; i++) {
        char file[4096];
        (void)snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            n += run_file(file);
        free(names[i]);
    }
    free(names);
    return n;
}

int main(int argc, char **argv)
{
    const char *base = strrchr(argv[0], '/');
    const char *srcdir = getenv("srcdir");
    const char *name = strstr(base != NULL ? base : argv[0], "fuzz_");
    char corpus[4096];
    int n = 0;
    (void)snprintf(corpus, sizeof(corpus), "%s/tests/fuzz/corpus/%s", srcdir != NULL ? srcdir : ".",
                   name != NULL ? name + strlen("fuzz_") : "none");
    run_one((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++)
        n += run_path(argv[i]);
    if (argc < 2)
        n = run_path(corpus);
    printf("%d files, %zu inputs\n", n, n_inputs);
    if (n > 0)
        return 0;
    printf("skipped: there is nothing in %s\n", argc < 2 ? corpus : argv[1]);
    return argc < 2 ? SKIPPED : 1;
}
