/* Records the memory that the Python stack of a process is read from, as an image of
 * tests/unit/python_image.h with no block that makes no difference.
 *
 * record_python PID FILE */
#include "base/io.h"
#include "python_image.h"
#include "report/stacks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGES = 256 };

struct recording {
    int memory;
    struct dd_buf image;
};

static int add_record(struct dd_buf *image, uint64_t addr, const void *block)
{
    const int rc = dd_buf_append(image, &addr, sizeof(addr));
    return rc < 0 ? rc : dd_buf_append(image, block, IMAGE_BLOCK);
}

static int read_and_record(void *arg, uint64_t addr, void *to, size_t n)
{
    struct recording *r = arg;
    if (pread(r->memory, to, n, (off_t)addr) != (ssize_t)n)
        return -EFAULT;
    for (size_t at = 0; at < n; at += IMAGE_BLOCK)
        if (add_record(&r->image, addr + at, (unsigned char *)to + at) < 0)
            return -ENOMEM;
    return 0;
}

static bool is_same(const struct dd_buf *image, const char *expected)
{
    struct image img;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * STACKS_TEXT);
    image_of(&img, image->data, image->len);
    return image_stack(&img, &out, NULL) == 0 && strcmp(dd_buf_str(&out), expected) == 0;
}

/* Remove the records that make no difference, first many at a time. */
static void shrink(struct dd_buf *image, const char *expected)
{
    for (size_t many = 256; many > 0; many /= 4)
        for (size_t at = 0; at < image->len;) {
            const size_t n = many * IMAGE_RECORD < image->len - at ? many * IMAGE_RECORD
                                                                   : image->len - at;
            DD_AUTO(buf) struct dd_buf less = DD_BUF_INIT(image->max);
            if (dd_buf_append(&less, image->data, at) == 0 &&
                dd_buf_append(&less, image->data + at + n, image->len - at - n) == 0 &&
                is_same(&less, expected)) {
                memcpy(image->data, less.data, less.len);
                image->len = less.len;
            } else
                at += n;
        }
}

static int open_of(const char *pid, const char *name)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%.20s/%s", pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

int main(int argc, char **argv)
{
    struct recording r = {.image = DD_BUF_INIT(PAGES * PY_PAGE / IMAGE_BLOCK * IMAGE_RECORD)};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * STACKS_TEXT);
    unsigned char auxv[IMAGE_AUXV];
    unsigned char pid[IMAGE_BLOCK] = {0};
    struct dd_err err = {0};
    if (argc != 3)
        return 2;
    const int number = (int)strtol(argv[1], NULL, 10);
    DD_AUTO(fd) int vector = open_of(argv[1], "auxv");
    const ssize_t size = vector < 0 ? -1 : read(vector, auxv, sizeof(auxv));
    DD_AUTO(fd) int file = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    r.memory = open_of(argv[1], "mem");
    struct py_memory *m = py_memory_new(read_and_record, &r);
    if (size < 0 || r.memory < 0 || file < 0 || m == NULL)
        return 1;
    memcpy(pid, &number, sizeof(number));
    (void)add_record(&r.image, IMAGE_PID, pid);
    for (ssize_t at = 0; at + IMAGE_BLOCK <= size; at += IMAGE_BLOCK)
        (void)add_record(&r.image, (uint64_t)at, auxv + at);
    const struct py_process p = {.auxv = auxv, .auxv_size = (size_t)size, .pid = number};
    const int rc = py_stack_read(m, &p, &out, &err);
    py_memory_free(m);
    if (rc == 0 && is_same(&r.image, dd_buf_str(&out)))
        shrink(&r.image, dd_buf_str(&out));
    printf("%d %s\n%s", rc, err.text, rc == 0 ? dd_buf_str(&out) : "");
    const bool written = rc == 0 && dd_write_full(file, r.image.data, r.image.len) == 0;
    dd_buf_done(&r.image);
    close(r.memory);
    return !written;
}
