/* The part of a process' memory that its Python stack is read from, in a file: records of an
 * address and BLOCK bytes, both in the order of bytes of the machine. Bytes between the blocks of a
 * page are 0, and a page without blocks is not mapped. Records with addresses below IMAGE_PID, in
 * their order, are the auxiliary vector; that with IMAGE_PID begins with the id of the process. */
#ifndef DD_TESTS_PYTHON_IMAGE_H
#define DD_TESTS_PYTHON_IMAGE_H

#include "pystack/py_stack.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum {
    IMAGE_BLOCK = 16,
    IMAGE_RECORD = 8 + IMAGE_BLOCK,
    IMAGE_PID = 8192,
    IMAGE_AUXV = 4096,
};

struct image {
    unsigned char *data; /* borrowed */
    size_t n;            /* records */
    unsigned char auxv[IMAGE_AUXV];
    size_t auxv_size;
    int pid;
};

static uint64_t image_address(const struct image *img, size_t i)
{
    uint64_t addr;
    memcpy(&addr, img->data + i * IMAGE_RECORD, sizeof(addr));
    return addr;
}

static void image_of(struct image *img, unsigned char *data, size_t size)
{
    *img = (struct image){.data = data, .n = size / IMAGE_RECORD};
    for (size_t i = 0; i < img->n; i++) {
        const unsigned char *block = data + i * IMAGE_RECORD + 8;
        const uint64_t addr = image_address(img, i);
        if (addr < IMAGE_PID && img->auxv_size + IMAGE_BLOCK <= IMAGE_AUXV) {
            memcpy(img->auxv + img->auxv_size, block, IMAGE_BLOCK);
            img->auxv_size += IMAGE_BLOCK;
        } else if (addr == IMAGE_PID)
            memcpy(&img->pid, block, sizeof(img->pid));
    }
}

/* A py_read_f. */
static int image_read(void *arg, uint64_t addr, void *to, size_t n)
{
    const struct image *img = arg;
    bool found = false;
    memset(to, 0, n);
    for (size_t i = 0; i < img->n; i++) {
        const uint64_t at = image_address(img, i) / IMAGE_BLOCK * IMAGE_BLOCK;
        if (at <= IMAGE_PID || at < addr || at - addr >= n)
            continue;
        memcpy((unsigned char *)to + (at - addr), img->data + i * IMAGE_RECORD + 8, IMAGE_BLOCK);
        found = true;
    }
    return found ? 0 : -EFAULT;
}

/* Read the stack from the image. */
static int image_stack(struct image *img, struct dd_buf *out, struct dd_err *err)
{
    const struct py_process p = {.auxv = img->auxv, .auxv_size = img->auxv_size, .pid = img->pid};
    struct py_memory *m = py_memory_new(image_read, img);
    const int rc = m == NULL ? -ENOMEM : py_stack_read(m, &p, out, err);
    py_memory_free(m);
    return rc;
}

#endif
