#include "cmd/torchrun.h"

#include "base/buf.h"
#include "base/io.h"
#include "base/num.h"
#include "base/sig.h"
#include "cmd/ddrun_options.h"
#include "web/etcd_url.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- --rdzv-backend, --logs-specs ---- */

int torchrun_parse_backend(const char *text, void *field, struct dd_err *err)
{
    static const char *const known[] = {"static", "c10d", "etcd", "etcd-v2"};
    bool ok = false;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        ok |= strcmp(text, known[i]) == 0;
    if (!ok)
        return dd_err_set(err, -EINVAL,
                          "unknown backend '%.60s': expected static, c10d, etcd or etcd-v2", text);
    *(const char **)field = text;
    return 0;
}

int torchrun_parse_logs_specs(const char *text, void *field, struct dd_err *err)
{
    if (strcmp(text, "default") != 0)
        return dd_err_set(err, -EINVAL,
                          "unsupported value '%.60s': ddrun loads no Python classes"
                          "\n  tip: omit the option, and use --log-dir, --redirects and --tee",
                          text);
    *(const char **)field = text;
    return 0;
}

/* ---- --rdzv-conf ---- */

enum conf_kind { CONF_TEXT, CONF_SECONDS, CONF_COUNT, CONF_BOOL, CONF_STORE, CONF_PROTOCOL };

/* Src: torch 2.13.0. Values of keys that have no effect in ddrun are checked, too. */
static const struct conf_key {
    const char *name;
    enum conf_kind kind;
} conf_keys[] = {
    {"is_host", CONF_BOOL},
    {"store_type", CONF_STORE},
    {"join_timeout", CONF_SECONDS},
    {"timeout", CONF_SECONDS},
    {"last_call_timeout", CONF_SECONDS},
    {"close_timeout", CONF_SECONDS},
    {"heartbeat_timeout", CONF_SECONDS},
    {"read_timeout", CONF_SECONDS},
    {"keep_alive_interval", CONF_SECONDS},
    {"keep_alive_max_attempt", CONF_COUNT},
    {"rank", CONF_TEXT},
    {"protocol", CONF_PROTOCOL},
    {"cert", CONF_TEXT},
    {"key", CONF_TEXT},
    {"cacert", CONF_TEXT},
    {"ssl_cert", CONF_TEXT},
    {"ssl_cert_key", CONF_TEXT},
    {"ca_cert", CONF_TEXT},
    {"etcd_prefix", CONF_TEXT},
};

struct conf_reader {
    struct rdzv_conf conf;
    int interval, attempts; /* keep-alive */
    bool join;              /* join_timeout was given, which takes precedence over timeout */
};

static bool torchrun_is_bool(const char *s)
{
    static const char *const words[] = {"1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(s, words[i]) == 0)
            return true;
    return false;
}

static int torchrun_conf_wrong(const char *key, const char *value, const char *right,
                               struct dd_err *err)
{
    return dd_err_set(err, -EINVAL, "invalid value in '%.60s=%.60s': expected %s", key, value,
                      right);
}

static void torchrun_conf_take(struct conf_reader *r, const char *key, int n)
{
    const uint64_t ns = (uint64_t)n * DD_NS_PER_S;
    if (strcmp(key, "join_timeout") == 0 || (strcmp(key, "timeout") == 0 && !r->join))
        r->conf.join_ns = ns;
    r->join = r->join || strcmp(key, "join_timeout") == 0;
    if (strcmp(key, "last_call_timeout") == 0)
        r->conf.last_call_ns = ns;
    if (strcmp(key, "keep_alive_interval") == 0)
        r->interval = n;
    if (strcmp(key, "keep_alive_max_attempt") == 0)
        r->attempts = n;
}

static int torchrun_conf_set(struct conf_reader *r, const char *key, const char *value,
                             struct dd_err *err)
{
    const struct conf_key *k = NULL;
    int n;
    for (size_t i = 0; i < sizeof(conf_keys) / sizeof(conf_keys[0]) && k == NULL; i++)
        if (strcmp(conf_keys[i].name, key) == 0)
            k = &conf_keys[i];
    if (k == NULL) {
        (void)snprintf(r->conf.unknown, sizeof(r->conf.unknown), "%s", key);
        return 0;
    }
    switch (k->kind) {
    case CONF_TEXT:
        return 0;
    case CONF_BOOL:
        return torchrun_is_bool(value) ? 0 : torchrun_conf_wrong(key, value, "true or false", err);
    case CONF_STORE:
        return strcasecmp(value, "tcp") == 0 || strcasecmp(value, "file") == 0
                   ? 0
                   : torchrun_conf_wrong(key, value, "tcp or file", err);
    case CONF_PROTOCOL:
        return strcasecmp(value, "http") == 0 || strcasecmp(value, "https") == 0
                   ? 0
                   : torchrun_conf_wrong(key, value, "http or https", err);
    case CONF_SECONDS:
    case CONF_COUNT:
    default:
        break;
    }
    if (dd_num_int(value, 1, INT_MAX, &n) < 0)
        return torchrun_conf_wrong(key, value,
                                   k->kind == CONF_COUNT ? "a number from 1 to 2147483647"
                                                         : "whole seconds from 1 to 2147483647",
                                   err);
    torchrun_conf_take(r, key, n);
    return 0;
}

int torchrun_parse_conf(const char *text, void *field, struct dd_err *err)
{
    struct conf_reader r = {.conf.text = text};
    DD_AUTO(strv) struct dd_strv pairs = {0};
    if (dd_strv_split(&pairs, text, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < pairs.n; i++) {
        char *value = strchr(pairs.v[i], '=');
        if (value == NULL || value == pairs.v[i] || value[1] == '\0')
            return dd_err_set(err, -EINVAL,
                              "invalid value '%.60s': expected KEY=VALUE, such as timeout=900",
                              pairs.v[i]);
        *value++ = '\0';
        int rc = torchrun_conf_set(&r, pairs.v[i] + strspn(pairs.v[i], " "), value, err);
        if (rc < 0)
            return rc;
    }
    if (r.interval > 0 || r.attempts > 0) /* torchrun's defaults: 5 s, 3 times */
        r.conf.dead_ns = (uint64_t)(r.interval > 0 ? r.interval : 5) *
                         (uint64_t)(r.attempts > 0 ? r.attempts : 3) * DD_NS_PER_S;
    *(struct rdzv_conf *)field = r.conf;
    return 0;
}

int torchrun_conf_get(char **ret, const struct rdzv_conf *conf, const char *key, struct dd_err *err)
{
    const size_t len = strlen(key);
    const char *value = NULL;
    size_t n = 0;
    for (const char *p = conf->text; p != NULL && *p != '\0';
         p += strcspn(p, ","), p += *p == ',') {
        const char *name = p + strspn(p, " ");
        if (strncmp(name, key, len) != 0 || name[len] != '=')
            continue;
        value = name + len + 1;
        n = strcspn(value, ",");
    }
    *ret = value != NULL ? strndup(value, n) : NULL;
    return value != NULL && *ret == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

/* ---- --signals-to-handle ---- */

int torchrun_parse_signals(const char *text, void *field, struct dd_err *err)
{
    struct signal_list l = {.text = text};
    DD_AUTO(strv) struct dd_strv names = {0};
    sigemptyset(&l.set);
    if (dd_strv_split(&names, text, ", ") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < names.n; i++) {
        int sig = dd_signal_parse(names.v[i]);
        if (sig < 0)
            (void)snprintf(l.unknown, sizeof(l.unknown), "%s", names.v[i]);
        else if (sig == SIGKILL || sig == SIGSTOP)
            return dd_err_set(err, -EINVAL, "signal '%s' cannot be handled", names.v[i]);
        else
            sigaddset(&l.set, sig);
    }
    *(struct signal_list *)field = l;
    return 0;
}

/* ---- the whole ---- */

bool torchrun_is_name(const char *argv0)
{
    const char *slash = argv0 != NULL ? strrchr(argv0, '/') : NULL;
    return argv0 != NULL && strcmp(slash != NULL ? slash + 1 : argv0, "torchrun") == 0;
}

struct opt_row *torchrun_rows(const struct opt_table *t)
{
    static const struct {
        const char *name, *def_doc;
    } own[] = {{"nproc-per-node", "1"}, {"nnodes", "1"}, {"exit-code", "1"}};
    struct opt_row *rows = calloc(t->n_rows, sizeof(*rows));
    if (rows == NULL)
        return NULL;
    memcpy(rows, t->rows, t->n_rows * sizeof(*rows));
    for (size_t i = 0; i < t->n_rows; i++)
        for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++)
            if (strcmp(rows[i].name, own[k].name) == 0)
                rows[i].def_doc = own[k].def_doc;
    return rows;
}

/* Write the prefix as part of a URL; "/a" and "a" are the same prefix. */
static void torchrun_put_prefix(struct dd_buf *out, const char *prefix)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    if (*prefix != '/')
        (void)dd_buf_printf(out, "/");
    for (; *prefix != '\0'; prefix++)
        (void)dd_buf_printf(out, strchr(plain, *prefix) != NULL ? "%c" : "%%%02x",
                            (unsigned char)*prefix);
}

/* Combine the three options with which torchrun names an etcd. Src: torch 2.13, etcd_rendezvous:
 * the default prefix. */
static void torchrun_apply_etcd(struct ddrun_options *o)
{
    const char *text = o->rdzv_endpoint;
    DD_AUTO(free) char *protocol = NULL;
    DD_AUTO(free) char *prefix = NULL;
    DD_AUTO(buf) struct dd_buf url = DD_BUF_INIT(1 << 20);
    if (strncmp(o->rdzv_backend, "etcd", 4) != 0 || text == NULL || etcd_url_is(text))
        return;
    (void)torchrun_conf_get(&protocol, &o->rdzv_conf, "protocol", NULL);
    (void)torchrun_conf_get(&prefix, &o->rdzv_conf, "etcd_prefix", NULL);
    (void)dd_buf_printf(&url, "%s://%s",
                        protocol != NULL && strcasecmp(protocol, "https") == 0 ? "etcds" : "etcd",
                        text);
    if (strchr(text, '/') == NULL)
        torchrun_put_prefix(&url, prefix != NULL ? prefix : "/torchelastic/p2p");
    const char *whole = dd_buf_str(
        &url); /* if the URL is too long, the check of its length reports it */
    (void)snprintf(o->etcd_endpoint, sizeof(o->etcd_endpoint), "%s",
                   whole != NULL ? whole : "etcd://");
    o->rdzv_endpoint = o->etcd_endpoint;
}

void torchrun_apply(struct ddrun_options *o, const struct opt_table *t,
                    const struct opt_result *res, bool by_name)
{
    if (o->rdzv_conf.join_ns > 0 && !opt_is_given(res, t, "rdzv-timeout"))
        o->rdzv_timeout = o->rdzv_conf.join_ns;
    if (o->rdzv_conf.last_call_ns > 0 && !opt_is_given(res, t, "last-call"))
        o->last_call = o->rdzv_conf.last_call_ns;
    if (o->rdzv_conf.dead_ns > 0 && !opt_is_given(res, t, "heartbeat"))
        o->heartbeat = o->rdzv_conf.dead_ns;
    torchrun_apply_etcd(o);
    o->by_torchrun = by_name;
    if (!by_name)
        return;
    if (o->nproc_per_node == NULL &&
        o->horovodrun.np > 0) /* torchrun reads --np as an abbreviation of another option */
        o->nproc_per_node = opt_result_source(res, t, "num-proc")->value;
    o->horovodrun.np = 0;
    if (o->nproc_per_node == NULL)
        o->nproc_per_node = "1";
    if (o->nnodes.max == 0 && o->hosts == NULL && o->hostfile == NULL && o->simulate_nodes == 0)
        o->nnodes = (struct node_range){.min = 1, .max = 1};
    if (!opt_is_given(res, t, "exit-code"))
        o->exit_code = "1";
}

void torchrun_tell(const struct ddrun_options *o, const struct dd_log *log)
{
    if (o->rdzv_conf.unknown[0] != '\0')
        dd_log(log, DD_LOG_WARN, "--rdzv-conf: ignoring unknown key '%s'", o->rdzv_conf.unknown);
    if (o->signals.unknown[0] != '\0')
        dd_log(log, DD_LOG_WARN, "--signals-to-handle: ignoring unknown signal '%s'",
               o->signals.unknown);
    if (strcmp(o->event_log_handler, "null") != 0)
        dd_log(log, DD_LOG_WARN,
               "--event-log-handler=%s has no effect"
               "\n  tip: use --log-level=info",
               o->event_log_handler);
}

int torchrun_check_gpus(const struct ddrun_options *o, char *const *env, int slots,
                        struct dd_err *err)
{
    const char *visible = dd_env_get(env, "CUDA_VISIBLE_DEVICES");
    int n = 1;
    if (!o->virtual_local_rank || visible == NULL)
        return 0;
    for (const char *p = visible; (p = strchr(p, ',')) != NULL; p++)
        n++;
    if (slots <= n)
        return 0;
    if (*visible == '\0')
        return dd_err_set(
            err, -EINVAL,
            "--virtual-local-rank needs a GPU for each of the %d workers, but "
            "CUDA_VISIBLE_DEVICES is empty"
            "\n  tip: set CUDA_VISIBLE_DEVICES to the GPUs of the workers, or unset it",
            slots);
    return dd_err_set(err, -EINVAL,
                      "--virtual-local-rank needs a GPU for each of the %d workers, but "
                      "CUDA_VISIBLE_DEVICES=%.200s has only %d"
                      "\n  tip: use --nproc-per-node=%d",
                      slots, visible, n, n);
}

int torchrun_exit_code(const struct ddrun_options *o, int code)
{
    return code != 0 && strcmp(o->exit_code, "1") == 0 ? 1 : code;
}
