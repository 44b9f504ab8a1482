#include "report/stack_frames.h"

#include <string.h>

bool stack_frame_next(const char **at, struct stack_frame *ret)
{
    const char *p = *at;
    if (*p == '\0')
        return false;
    const size_t len = strcspn(p, "\n");
    *at = p + len + (p[len] == '\n');
    ret->function = p;
    ret->nfunction = (int)strcspn(p, "\t\n");
    p += ret->nfunction + (p[ret->nfunction] == '\t');
    ret->file = p;
    ret->nfile = (int)strcspn(p, "\t\n");
    p += ret->nfile + (p[ret->nfile] == '\t');
    ret->line = p;
    ret->nline = (int)strcspn(p, "\t\n");
    return true;
}

bool stack_frame_is_function(const struct stack_frame *f, const char *name)
{
    return (size_t)f->nfunction == strlen(name) &&
           strncmp(f->function, name, (size_t)f->nfunction) == 0;
}

bool stack_frame_is_in(const struct stack_frame *f, const char *part)
{
    return memmem(f->file, (size_t)f->nfile, part, strlen(part)) != NULL;
}

bool stack_frame_is_native(const struct stack_frame *f)
{
    const size_t n = sizeof(STACK_FRAME_NATIVE) - 1;
    return (size_t)f->nfile >= n && memcmp(f->file, STACK_FRAME_NATIVE, n) == 0;
}

/* True for a file of glibc, as distributions build it. */
static bool is_libc_source(const struct stack_frame *f)
{
    static const char *const places[] = {"../sysdeps/", "./nptl/", "./io/", "./misc/"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if ((size_t)f->nfile > strlen(places[i]) &&
            memcmp(f->file, places[i], strlen(places[i])) == 0)
            return true;
    return false;
}

/* True for "/usr/lib/libmpi.so.40", and for the library of the kernel: "[vdso: 5000]". */
static bool is_shared_library(const struct stack_frame *f)
{
    if (f->nfile >= 5 && memcmp(f->file, "[vdso", 5) == 0)
        return true;
    const char *so = memmem(f->file, (size_t)f->nfile, ".so", 3);
    const char *end = f->file + f->nfile;
    return so != NULL && (so + 3 == end || so[3] == '.');
}

bool stack_frame_is_python(const struct stack_frame *f)
{
    if (f->nfile >= 7 && strncmp(f->file, "<frozen", 7) == 0)
        return true;
    return (stack_frame_is_in(f, "/lib/python") || stack_frame_is_in(f, "/lib64/python")) &&
           !stack_frame_is_in(f, "-packages/");
}

bool stack_frame_is_internal(const struct stack_frame *f)
{
    static const char *const packages[] = {
        "-packages/torch/",  "-packages/numpy/",      "-packages/jax/",     "-packages/jaxlib/",
        "-packages/mpi4py/", "-packages/tensorflow/", "-packages/horovod/", "-packages/deepspeed/",
        "-packages/paddle/", "-packages/torch_npu/",  "-packages/triton/",
    };
    for (size_t i = 0; i < sizeof(packages) / sizeof(packages[0]); i++)
        if (stack_frame_is_in(f, packages[i]))
            return true;
    return stack_frame_is_python(f) || is_shared_library(f) || is_libc_source(f);
}

/* True for a function that only calls another one: a decorator, or a hook of PyTorch's modules. */
static bool is_wrapper(const struct stack_frame *f)
{
    static const char *const names[] = {"wrapper",    "inner",    "decorate_context",  "_fn",
                                        "_call_impl", "__call__", "_wrapped_call_impl"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (stack_frame_is_function(f, names[i]))
            return true;
    return false;
}

bool stack_frames_choose(const char *frames, struct stack_frame *ret_called,
                         struct stack_frame *ret_user)
{
    struct stack_frame f;
    struct stack_frame last = {0};
    struct stack_frame first = {0};
    bool found = false;
    for (const char *at = frames; !found && stack_frame_next(&at, &f);) {
        if (stack_frame_is_native(&f))
            continue;
        if (first.function == NULL)
            first = f;
        found = !stack_frame_is_internal(&f);
        if (found)
            *ret_user = f;
        else if (!is_wrapper(&f))
            last = f;
    }
    if (!found)
        *ret_user = first;
    *ret_called = found && last.function != NULL ? last : *ret_user;
    return first.function != NULL;
}

int stack_frame_put_place(const struct stack_frame *f, struct dd_buf *out)
{
    const char *slash = memrchr(f->file, '/', (size_t)f->nfile);
    const char *base = slash != NULL ? slash + 1 : f->file;
    const bool known = f->nline != 1 || f->line[0] != '0';
    return dd_buf_printf(out, "%.*s%s%.*s", f->nfile - (int)(base - f->file), base,
                         known ? ":" : "", known ? f->nline : 0, f->line);
}
