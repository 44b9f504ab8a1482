#include "report/metrics_json.h"

#include "base/auto.h"
#include "base/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* State of reading a text. */
struct metrics_reader {
    json_t *metrics;
    json_t *family; /* last element of metrics, begun by the last HELP line; NULL: none yet */
};

/* Return a copy of the text from begin to end, which the caller frees; NULL: out of memory. */
static char *metrics_cut(const char *begin, const char *end)
{
    char *text = end > begin ? strndup(begin, (size_t)(end - begin)) : strdup("");
    return text != NULL ? dd_utf8_clean(text) : NULL;
}

/* Read a comment: "HELP name text", "TYPE name type", "UNIT name unit". */
static int metrics_read_comment(struct metrics_reader *r, const char *line, const char *end)
{
    static const struct {
        const char *word, *member;
    } kinds[] = {{"# HELP ", "help"}, {"# TYPE ", "type"}, {"# UNIT ", "unit"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const size_t n = strlen(kinds[i].word);
        if ((size_t)(end - line) <= n || strncmp(line, kinds[i].word, n) != 0)
            continue;
        const char *space = memchr(line + n, ' ', (size_t)(end - line) - n);
        if (space == NULL || (i > 0 && r->family == NULL))
            return -EINVAL;
        DD_AUTO(free) char *name = metrics_cut(line + n, space);
        DD_AUTO(free) char *text = metrics_cut(space + 1, end);
        if (name == NULL || text == NULL)
            return -ENOMEM;
        if (i == 0) {
            r->family = json_pack("{s:s,s:n,s:n,s:n,s:[]}", "name", name, "type", "unit", "help",
                                  "samples");
            if (json_array_append_new(r->metrics, r->family) < 0)
                return -ENOMEM;
        }
        return json_object_set_new(r->family, kinds[i].member, json_string(text)) < 0 ? -ENOMEM : 0;
    }
    return end - line == 5 && strncmp(line, "# EOF", 5) == 0 ? 0 : -EINVAL;
}

/* Read a label, name="value", at *p. */
static int metrics_read_label(const char **p, const char *end, json_t *labels)
{
    const char *equals = memchr(*p, '=', (size_t)(end - *p));
    if (equals == NULL || equals + 1 >= end || equals[1] != '"')
        return -EINVAL;
    DD_AUTO(free) char *name = metrics_cut(*p, equals);
    DD_AUTO(free) char *value = malloc((size_t)(end - equals));
    size_t n = 0;
    const char *c = equals + 2;
    if (name == NULL || value == NULL)
        return -ENOMEM;
    for (; c < end && *c != '"'; c++) {
        if (*c == '\\' && c + 1 < end)
            value[n++] = *++c == 'n' ? '\n' : *c;
        else
            value[n++] = *c;
    }
    if (c >= end)
        return -EINVAL;
    value[n] = '\0';
    *p = c + 1;
    return json_object_set_new(labels, name, json_string(dd_utf8_clean(value))) < 0 ? -ENOMEM : 0;
}

/* Read labels, {a="b",c="d"}, at *p. */
static int metrics_read_labels(const char **p, const char *end, json_t *labels)
{
    int rc = 0;
    do {
        ++*p;
        rc = metrics_read_label(p, end, labels);
    } while (rc == 0 && *p < end && **p == ',');
    if (rc == 0 && (*p >= end || **p != '}'))
        rc = -EINVAL;
    ++*p;
    return rc;
}

static json_t *metrics_value(const char *text, const char *end)
{
    char *stop;
    if (memchr(text, '.', (size_t)(end - text)) == NULL) {
        errno = 0;
        const long long n = strtoll(text, &stop, 10);
        if (stop == end && stop > text && errno == 0)
            return json_integer(n);
    }
    const double x = strtod(text, &stop);
    return stop == end && stop > text && isfinite(x) ? json_real(x) : NULL;
}

static int metrics_read_sample(const struct metrics_reader *r, const char *line, const char *end)
{
    const char *p = line;
    json_t *labels = json_object();
    json_t *sample = json_pack("{s:o}", "labels", labels);
    int rc = sample != NULL ? 0 : -ENOMEM;
    while (p < end && *p != '{' && *p != ' ')
        p++;
    if (rc == 0 && p < end && *p == '{')
        rc = metrics_read_labels(&p, end, labels);
    json_t *value = rc == 0 && p + 1 < end && *p == ' ' ? metrics_value(p + 1, end) : NULL;
    if (rc == 0 && (value == NULL || r->family == NULL)) {
        json_decref(value);
        rc = -EINVAL;
    }
    if (rc == 0 && (json_object_set_new(sample, "value", value) < 0 ||
                    json_array_append(json_object_get(r->family, "samples"), sample) < 0))
        rc = -ENOMEM;
    json_decref(sample);
    return rc;
}

static int metrics_read(struct metrics_reader *r, const char *text)
{
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        const char *end = strchrnul(text, '\n');
        rc = *text == '#' ? metrics_read_comment(r, text, end) : metrics_read_sample(r, text, end);
        text = *end == '\n' ? end + 1 : end;
    }
    return rc;
}

int metrics_json(const char *text, struct dd_buf *out)
{
    struct metrics_reader r = {.metrics = json_array()};
    json_t *o = json_pack("{s:i,s:o}", "version", 1, "metrics", r.metrics);
    int rc = o != NULL ? metrics_read(&r, text) : -ENOMEM;
    DD_AUTO(free) char *dumped = rc == 0 ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15))
                                         : NULL;
    json_decref(o);
    if (rc < 0)
        return rc;
    return dumped == NULL ? -ENOMEM : dd_buf_printf(out, "%s\n", dumped);
}
