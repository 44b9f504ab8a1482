#include "daemon/config.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/utf8.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void config_hex(char out[2 * NET_KEY_LEN + 1], const unsigned char bytes[NET_KEY_LEN])
{
    for (size_t i = 0; i < NET_KEY_LEN; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static int config_unhex(unsigned char out[NET_KEY_LEN], const char *text)
{
    if (strlen(text) != 2 * NET_KEY_LEN || strspn(text, "0123456789abcdef") != 2 * NET_KEY_LEN)
        return -EPROTO;
    for (size_t i = 0; i < NET_KEY_LEN; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        out[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return 0;
}

/* Plain integer fields, used for both directions. */
static const struct number {
    const char *name;
    size_t offset;
    size_t size; /* of the field */
    int64_t min, max;
} numbers[] = {
#define NUMBER(name, field, min, max)                                                              \
    {name, offsetof(struct daemon_config, field), sizeof(((struct daemon_config *)0)->field), min, \
     max}
    NUMBER("min_nodes", rdzv.min_nodes, 1, PLAN_MAX_NODES),
    NUMBER("max_nodes", rdzv.max_nodes, 1, PLAN_MAX_NODES),
    NUMBER("expected", rdzv.expected, 1, PLAN_MAX_NODES),
    NUMBER("capacity", rdzv.capacity, 1, PLAN_MAX_NODES),
    NUMBER("max_restarts", rdzv.max_restarts, 0, INT32_MAX),
    NUMBER("restart_window_ns", rdzv.restart_window_ns, 0, INT64_MAX),
    NUMBER("blame_window_ns", rdzv.blame_window_ns, 0, INT64_MAX),
    NUMBER("leave_signal", rdzv.leave_signal, 0, 64),
    NUMBER("leave_ns", rdzv.leave_ns, 0, INT64_MAX / 2),
    NUMBER("progress_restarts", rdzv.progress_restarts, 0, INT32_MAX),
    NUMBER("join_ns", rdzv.join_ns, 0, INT64_MAX),
    NUMBER("last_call_ns", rdzv.last_call_ns, 0, INT64_MAX),
    NUMBER("rejoin_ns", rdzv.rejoin_ns, 0, INT64_MAX),
    NUMBER("grow", rdzv.grow, 0, RDZV_GROW_NO),
    NUMBER("epoch", rdzv.epoch, 0, INT64_MAX),
    NUMBER("tie", rdzv.tie, 0, PLAN_MAX_NODES - 1),
    NUMBER("probes_first", rdzv.probes_first, 0, 1),
    NUMBER("screen_fd", screen_fd, -1, INT32_MAX),
    NUMBER("trace", trace, 0, DD_TRACE_ALL),
    NUMBER("profile", profile, 0, 1),
    NUMBER("stacks", stacks, 0, 7),
    NUMBER("stacks_ns", stacks_ns, 0, INT64_MAX),
    NUMBER("heartbeat_ns", heartbeat_ns, 1, INT64_MAX),
    NUMBER("start_ns", start_ns, 0, INT64_MAX),
#undef NUMBER
};

enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static json_t *config_pack_exit_rules(const struct exit_rules *r)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(EXIT_RULES_TEXT);
    const char *s = exit_rules_format(&text, r) == 0 ? dd_buf_str(&text) : NULL;
    return s != NULL ? json_string(s) : NULL;
}

static json_t *config_pack_numbers(const struct daemon_config *c)
{
    json_t *o = json_object();
    for (size_t i = 0; i < NUMBERS; i++) {
        const char *at = (const char *)c + numbers[i].offset;
        int small = 0;
        int64_t v = 0;
        if (numbers[i].size == sizeof(small))
            memcpy(&small, at, sizeof(small));
        else
            memcpy(&v, at, sizeof(v));
        (void)json_object_set_new(o, numbers[i].name, json_integer(v + small));
    }
    return o;
}

static int config_unpack_numbers(struct daemon_config *c, const json_t *o, struct dd_err *err)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        const json_t *v = json_object_get(o, numbers[i].name);
        char *at = (char *)c + numbers[i].offset;
        if (!json_is_integer(v) || json_integer_value(v) < numbers[i].min ||
            json_integer_value(v) > numbers[i].max)
            return dd_err_set(err, -EPROTO, "configuration value '%s' is missing or out of range",
                              numbers[i].name);
        const int64_t value = json_integer_value(v);
        const int small = (int)value;
        if (numbers[i].size == sizeof(small))
            memcpy(at, &small, sizeof(small));
        else
            memcpy(at, &value, sizeof(value));
    }
    return 0;
}

int daemon_config_write(const struct daemon_config *c, struct dd_err *err)
{
    char key[2 * NET_KEY_LEN + 1];
    char source[sizeof(c->key.source)];
    config_hex(key, c->key.bytes);
    (void)snprintf(source, sizeof(source), "%s", c->key.source);
    (void)dd_utf8_clean(source); /* shown in messages only; it may contain the name of a file */
    json_t *o = json_pack(
        "{s:s s:s s:i s:i s:i s:i s:i s:s s:s s:s* s:s* s:s* s:s* s:s* s:o s:o}", "job_id",
        c->job_id, "nodes", c->nodes, "port", c->port, "listen_fd", c->listen_fd, "leader_fd",
        c->leader_fd, "log_level", c->log_level, "method", (int)c->key.method, "key", key,
        "key_source", source, "munge_socket", c->munge_socket, "run", c->run, "notify", c->notify,
        "web_helper", c->web_helper, "timeline", c->timeline, "numbers", config_pack_numbers(c),
        "exit_rules", config_pack_exit_rules(&c->rdzv.exit_rules));
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for the daemon's configuration");
    DD_AUTO(fd) int fd = memfd_create("ddrund", MFD_CLOEXEC);
    if (fd < 0)
        return dd_err_set(err, -errno, "memfd_create failed: %m");
    int rc = dd_write_full(fd, text, strlen(text));
    if (rc < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return dd_err_set(err, rc < 0 ? rc : -errno, "cannot write the daemon's configuration: %s",
                          strerror(rc < 0 ? -rc : errno));
    return DD_TAKE_FD(fd);
}

static int config_unpack(struct daemon_config *c, json_t *o, struct dd_err *err)
{
    const char *key;
    const char *source;
    const char *rules;
    json_t *plain;
    int method;
    json_error_t je;
    if (json_unpack_ex(
            o, &je, 0, "{s:s s:s s:i s:i s:i s:i s:i s:s s:s s?s s?s s?s s?s s?s s:o s:s}",
            "job_id", &c->job_id, "nodes", &c->nodes, "port", &c->port, "listen_fd", &c->listen_fd,
            "leader_fd", &c->leader_fd, "log_level", &c->log_level, "method", &method, "key", &key,
            "key_source", &source, "munge_socket", &c->munge_socket, "run", &c->run, "notify",
            &c->notify, "web_helper", &c->web_helper, "timeline", &c->timeline, "numbers", &plain,
            "exit_rules", &rules) < 0)
        return dd_err_set(err, -EPROTO, "invalid configuration: %s", je.text);
    int rc = config_unpack_numbers(c, plain, err);
    if (rc == 0)
        rc = exit_rules_parse(&c->rdzv.exit_rules, rules, err);
    if (rc < 0)
        return rc;
    const char *wrong = c->port < 1 || c->port > 65535               ? "port"
                        : method < 0 || method >= NET_KEY_METHOD_MAX ? "method"
                        : config_unhex(c->key.bytes, key) < 0        ? "key"
                                                                     : NULL;
    if (wrong != NULL)
        return dd_err_set(err, -EPROTO, "configuration value '%s' is invalid", wrong);
    c->key.method = (enum net_key_method)method;
    (void)snprintf(c->key.source, sizeof(c->key.source), "%s", source);
    return 0;
}

int daemon_config_read(struct daemon_config *ret, int fd, struct dd_err *err)
{
    DD_AUTO(file) FILE *f = fdopen(fd, "r");
    if (f == NULL)
        return dd_err_set(err, -errno, "cannot read file descriptor %d: %m", fd);
    json_error_t je;
    json_t *o = json_loadf(f, JSON_REJECT_DUPLICATES, &je);
    if (o == NULL)
        return dd_err_set(err, -EPROTO, "configuration is not valid JSON: %s", je.text);
    struct daemon_config c = {.storage = o};
    int rc = config_unpack(&c, o, err);
    if (rc < 0)
        daemon_config_done(&c);
    else
        *ret = c;
    return rc;
}

void daemon_config_done(struct daemon_config *c)
{
    json_decref(c->storage);
    memset(c, 0, sizeof(*c));
}
