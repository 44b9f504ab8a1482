#include "stage/stage_source.h"

#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of two suffixes that match, the longer one comes first. */
static const char *const archives[] = {".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar",
                                       ".tgz",    ".tbz2",    ".txz",    ".tzst",    ".zip"};
static const char *const images[] = {".squashfs", ".sqsh", ".sqfs"};
static const char *const foreign[] = {".sif", ".img"};

static const char *end_of(const char *const *ends, size_t count, const char *path, size_t n)
{
    for (size_t i = 0; i < count; i++) {
        const size_t len = strlen(ends[i]);
        if (n > len && path[n - len - 1] != '/' && memcmp(path + n - len, ends[i], len) == 0)
            return ends[i];
    }
    return NULL;
}

static const char *archive_end(const char *path, size_t n)
{
    return end_of(archives, sizeof(archives) / sizeof(archives[0]), path, n);
}

static const char *image_end(const char *path, size_t n)
{
    return end_of(images, sizeof(images) / sizeof(images[0]), path, n);
}

static const char *file_end(const char *path, size_t n)
{
    const char *end = archive_end(path, n);
    return end != NULL ? end : image_end(path, n);
}

bool stage_source_is_foreign(const char *path)
{
    return end_of(foreign, sizeof(foreign) / sizeof(foreign[0]), path, strlen(path)) != NULL;
}

int stage_source_parse(struct stage_source *ret, const char *text)
{
    const char *name = strrchr(text, ':');
    size_t n = name != NULL ? (size_t)(name - text) : 0;
    const char *end = name != NULL && name[1] == '/' ? file_end(text, n) : NULL;
    if (end == NULL) { /* no NAME */
        n = strlen(text);
        end = file_end(text, n);
        name = NULL;
    }
    *ret = (struct stage_source){.path = strndup(text, n),
                                 .archive = archive_end(text, n) != NULL,
                                 .image = image_end(text, n) != NULL};
    if (name != NULL)
        ret->name = strdup(name + 1);
    else
        ret->name = strndup(text, n - (end != NULL ? strlen(end) : 0));
    if (ret->path != NULL && ret->name != NULL)
        return 0;
    stage_source_done(ret);
    return -ENOMEM;
}

void stage_source_done(struct stage_source *s)
{
    free(s->path);
    free(s->name);
    *s = (struct stage_source){0};
}

bool stage_sources_have_image(char *const *texts)
{
    bool any = false;
    for (size_t i = 0; texts[i] != NULL && !any; i++) {
        DD_AUTO(stage_source) struct stage_source s = {0};
        any = stage_source_parse(&s, texts[i]) == 0 && s.image;
    }
    return any;
}

int stage_sources_parse(struct stage_sources *ret, char *const *texts)
{
    int n = 0;
    while (texts[n] != NULL)
        n++;
    *ret = (struct stage_sources){.v = calloc((size_t)n + 1, sizeof(*ret->v)),
                                  .paths = calloc((size_t)n + 1, sizeof(*ret->paths)),
                                  .names = calloc((size_t)n + 1, sizeof(*ret->names))};
    if (ret->v == NULL || ret->paths == NULL || ret->names == NULL)
        return -ENOMEM;
    for (; ret->n < n; ret->n++) {
        if (stage_source_parse(&ret->v[ret->n], texts[ret->n]) < 0)
            return -ENOMEM;
        ret->paths[ret->n] = ret->v[ret->n].path;
        ret->names[ret->n] = ret->v[ret->n].name;
    }
    return 0;
}
