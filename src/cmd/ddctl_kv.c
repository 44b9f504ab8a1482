/* ddctl kv: list and read the keys of the round's store. */
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 200, SIMILAR_MAX = 3 };

struct kv_options {
    const char *job, *format;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct kv_options),
    {JOB_FORMAT(struct kv_options), .help = "format of list: text, or one JSON object"},
};

const struct opt_table ddctl_kv_options = {
    .program = "ddctl kv",
    .version = PACKAGE_VERSION,
    .usage = "[options] list [PREFIX] | get KEY | watch KEY",
    .about = "Reads the store of the current round: 'list' prints all keys, or those that begin "
             "with PREFIX; 'get' writes the bytes of one value; 'watch' prints a value each time "
             "that it changes. Each round has a new store.",
    .mixed = true,
    OPT_ROWS(rows),
    .foreign = job_json,
};

static int ddctl_kv_by_name(const void *a, const void *b)
{
    return strcmp(json_text(*(json_t *const *)a, "key"), json_text(*(json_t *const *)b, "key"));
}

static int ddctl_kv_put_keys(struct dd_buf *out, const json_t *answer)
{
    const json_t *keys = json_object_get(answer, "keys");
    const size_t n = json_array_size(keys);
    const int more = json_number(answer, "left_out", 0);
    DD_AUTO(free) json_t **sorted = calloc(n + 1, sizeof(json_t *));
    int rc = sorted == NULL ? -ENOMEM : 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        sorted[i] = json_array_get(keys, i);
    if (rc == 0)
        qsort(sorted, n, sizeof(json_t *), ddctl_kv_by_name);
    if (rc == 0 && n > 0 && isatty(STDOUT_FILENO)) /* scripts read lines of keys only */
        rc = dd_buf_printf(out, "%10s  %s\n", "BYTES", "KEY");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = dd_buf_printf(out, "%10d  %s\n", json_number(sorted[i], "bytes", 0),
                           json_text(sorted[i], "key"));
    return rc < 0 || more == 0 ? rc : dd_buf_printf(out, "and %d more\n", more);
}

static int ddctl_kv_list(const struct kv_options *o, const char *prefix, struct dd_buf *out,
                         struct dd_err *err)
{
    json_t *answer = NULL;
    int rc = job_ask(&answer, &(struct job_question){.job = o->job, .what = "keys", .text = prefix},
                     err);
    if (rc < 0)
        return rc;
    if (strcmp(o->format, "json") == 0) {
        rc = json_object_set_new(answer, "version", json_integer(1));
        DD_AUTO(free) char *text = rc == 0 ? json_dumps(answer, JSON_INDENT(2)) : NULL;
        rc = text == NULL ? -ENOMEM : dd_buf_printf(out, "%s\n", text);
    } else {
        rc = ddctl_kv_put_keys(out, answer);
    }
    json_decref(answer);
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : 0;
}

static int ddctl_kv_digit(char c)
{
    return c >= 'a' ? c - 'a' + 10 : c - '0';
}

/* Append the value of a key to *out. *ret_there becomes false if the key does not exist. */
static int ddctl_kv_read_value(const struct kv_options *o, const char *key, struct dd_buf *out,
                               bool *ret_there, struct dd_err *err)
{
    json_t *answer = NULL;
    int rc = job_ask(&answer, &(struct job_question){.job = o->job, .what = "key", .text = key},
                     err);
    if (rc < 0)
        return rc;
    const char *hex = json_string_value(json_object_get(answer, "hex"));
    *ret_there = hex != NULL;
    for (; hex != NULL && hex[0] != '\0' && hex[1] != '\0' && rc == 0; hex += 2) {
        const unsigned char byte = (unsigned char)(ddctl_kv_digit(hex[0]) << 4 |
                                                   ddctl_kv_digit(hex[1]));
        rc = dd_buf_append(out, &byte, 1);
    }
    json_decref(answer);
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : 0;
}

/* Set the error for a key that does not exist. Suggest keys that contain the given one: programs
 * see "best/1" where PyTorch has stored "/default_pg/0//best/1". */
static int ddctl_kv_unknown_key(const struct kv_options *o, const char *key, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf similar = DD_BUF_INIT(400);
    struct dd_err unasked = {0}; /* if this request fails, there is no suggestion */
    json_t *answer = NULL;
    int n = 0;
    int rc = dd_err_set(err, -ENOENT, "no key '%.200s' in the store", key);
    (void)job_ask(&answer, &(struct job_question){.job = o->job, .what = "keys", .text = ""},
                  &unasked);
    const json_t *keys = json_object_get(answer, "keys");
    for (size_t i = 0; i < json_array_size(keys) && n < SIMILAR_MAX; i++) {
        const char *name = json_text(json_array_get(keys, i), "key");
        if (strstr(name, key) != NULL &&
            dd_buf_printf(&similar, "%s'%s'", n > 0 ? " or " : "", name) == 0)
            n++;
    }
    if (n > 0)
        rc = dd_err_tip(err, rc, "did you mean %s?", dd_buf_str(&similar));
    else
        rc = dd_err_tip(err, rc, "'ddctl kv list' prints all keys");
    json_decref(answer);
    return rc;
}

static int ddctl_kv_get(const struct kv_options *o, const char *key, struct dd_buf *out,
                        struct dd_err *err)
{
    bool there = false;
    int rc = ddctl_kv_read_value(o, key, out, &there, err);
    return rc == 0 && !there ? ddctl_kv_unknown_key(o, key, err) : rc;
}

/* Print the value at each change, until the job ends. */
static int ddctl_kv_watch(const struct kv_options *o, const char *key, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf last = DD_BUF_INIT(8 << 20);
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    bool seen = false;
    for (bool first = true;; first = false) {
        DD_AUTO(buf) struct dd_buf now = DD_BUF_INIT(8 << 20);
        bool there = false;
        int rc = ddctl_kv_read_value(o, key, &now, &there, err);
        if (rc < 0)
            return first ? rc : 0;
        const bool same = seen && now.len == last.len &&
                          (now.len == 0 || memcmp(now.data, last.data, now.len) == 0);
        if (there && !same) {
            dd_buf_clear(&last);
            if (dd_buf_append(&last, now.data, now.len) < 0 || dd_buf_puts(&now, "\n") < 0)
                return dd_err_set(err, -ENOMEM, "out of memory");
            if (dd_write_full(STDOUT_FILENO, now.data, now.len) < 0)
                return 0; /* usually because the reader of stdout has closed it */
            seen = true;
        }
        (void)nanosleep(&pause, NULL);
    }
}

static int ddctl_kv_run(const struct kv_options *o, int n, char **words, struct dd_buf *out,
                        struct dd_err *err)
{
    if (n >= 1 && n <= 2 && strcmp(words[0], "list") == 0)
        return ddctl_kv_list(o, n == 2 ? words[1] : "", out, err);
    if (n == 2 && strcmp(words[0], "get") == 0)
        return ddctl_kv_get(o, words[1], out, err);
    if (n == 2 && strcmp(words[0], "watch") == 0)
        return ddctl_kv_watch(o, words[1], err);
    return dd_err_tip(
        err, dd_err_set(err, -EINVAL, "expected 'list [PREFIX]', 'get KEY' or 'watch KEY'"),
        "'ddctl kv list' prints the keys");
}

int ddctl_kv(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(32 << 20);
    struct kv_options o = {0};
    struct dd_err err = {0};
    int code = cmd_options_alone(&ddctl_kv_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = ddctl_kv_run(&o, argc - res.script, argv + res.script, &out, &err);
    return rc < 0 ? job_fail(&ddctl_kv_options, rc, &err) : cmd_write(&ddctl_kv_options, &out);
}
