#include "lib/step_file.h"

#include "base/num.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* True if the path is the agent's memory. Another process with the same number may have another
 * file there. */
static bool is_steps_file(const char *path)
{
    char target[64];
    const ssize_t n = readlink(path, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    return strncmp(target, "/memfd:ddrun-steps", strlen("/memfd:ddrun-steps")) == 0;
}

/* Map the page at offset `at`. NULL: the page does not exist, or cannot be mapped. */
static void *steps_map(const char *path, off_t at)
{
    struct stat st;
    const int fd = is_steps_file(path) ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return NULL;
    void *p = fstat(fd, &st) == 0 && st.st_size >= at + STEP_PAGE_BYTES
                  ? mmap(NULL, STEP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at)
                  : MAP_FAILED;
    (void)close(fd);
    return p != MAP_FAILED ? p : NULL;
}

/* DDRUN_STEPS is "PAGE:PATH". */
struct step_page *step_file_open(void)
{
    const char *text = getenv("DDRUN_STEPS");
    const char *path = text != NULL ? strchr(text, ':') : NULL;
    char page[12];
    int number;
    if (path == NULL || path - text >= (ptrdiff_t)sizeof(page))
        return NULL;
    (void)snprintf(page, sizeof(page), "%.*s", (int)(path - text), text);
    if (dd_num_int(page, 0, INT_MAX / STEP_PAGE_BYTES, &number) < 0)
        return NULL;
    return steps_map(path + 1, (off_t)number * STEP_PAGE_BYTES);
}

void step_file_close(struct step_page *p)
{
    if (p != NULL)
        (void)munmap(p, STEP_PAGE_BYTES);
}
