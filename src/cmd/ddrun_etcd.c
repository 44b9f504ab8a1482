/* The etcd of --rdzv-endpoint, as given by its URL, torchrun's --rdzv-conf and the environment. */
#include "cmd/ddrun_run.h"

#include "base/io.h"
#include "base/utf8.h"
#include "web/etcd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Report that no password was found. A password in a file takes precedence over the variable. */
static int run_etcd_no_password(const struct run *r, struct dd_err *err)
{
    if (r->etcd.password_file != NULL)
        return dd_err_set(err, -EINVAL,
                          "--rdzv-endpoint: password file '%.300s' has no password on its first "
                          "line",
                          r->etcd.password_file);
    return dd_err_set(err, -EINVAL,
                      "--rdzv-endpoint: no password for etcd user '%.60s'"
                      "\n  tip: set DDRUN_ETCD_PASSWORD, or use ?password-file=FILE",
                      r->etcd.user);
}

/* Read the password from the URL, from the file that the URL names, or from the environment. */
static int run_etcd_read_password(struct run *r, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(ETCD_PASSWORD_MAX);
    const bool in_url = r->etcd.password != NULL && r->etcd.password[0] != '\0';
    const char *said = in_url ? r->etcd.password
                              : dd_env_get_nonempty(r->env.v, "DDRUN_ETCD_PASSWORD");
    if (r->etcd.user == NULL)
        return 0;
    if (r->etcd.password_file != NULL) {
        int rc = dd_read_file(r->etcd.password_file, &text, err);
        said = rc == 0 ? dd_buf_str(&text) : NULL;
        if (rc < 0)
            return dd_err_where(err, rc, "--rdzv-endpoint");
    }
    if (said == NULL || strcspn(said, "\r\n") == 0)
        return run_etcd_no_password(r, err);
    r->etcd_password = strndup(said, strcspn(said, "\r\n"));
    if (text.data != NULL)
        explicit_bzero(text.data, text.len);
    if (r->etcd_password == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (strlen(r->etcd_password) > ETCD_PASSWORD_MAX ||
        !dd_utf8_is(r->etcd_password)) /* the password becomes part of a JSON text */
        return dd_err_set(
            err, -EINVAL,
            "--rdzv-endpoint: the password of etcd user '%.60s' must be UTF-8 of at most %d bytes",
            r->etcd.user, ETCD_PASSWORD_MAX);
    return 0;
}

/* ---- TLS files ---- */

/* The files and their keys in --rdzv-conf for etcd and for etcd-v2. Src: torch 2.13.0. */
static const struct tls_file {
    const char *name, *conf[2];
    size_t offset;
} tls_files[] = {
    {"cacert", {"cacert", "ca_cert"}, offsetof(struct etcd_url, cacert)},
    {"cert", {"cert", "ssl_cert"}, offsetof(struct etcd_url, cert)},
    {"key", {"key", "ssl_cert_key"}, offsetof(struct etcd_url, key)},
};

static char **run_etcd_file_of(struct etcd_url *u, const struct tls_file *f)
{
    return (char **)(void *)((char *)u + f->offset);
}

/* Check that the file is readable, so that an error is reported before the job waits for nodes. */
static int run_etcd_check_file(const char *option, const struct tls_file *f, const char *path,
                               struct dd_err *err)
{
    char c;
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || read(fd, &c, 1) < 0)
        return dd_err_set(err, -errno, "%s: cannot read '%.500s' (%s): %m", option, path, f->name);
    return 0;
}

static int run_etcd_take_conf(struct etcd_url *u, const struct rdzv_conf *conf, bool tls,
                              struct dd_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof(tls_files) / sizeof(tls_files[0]) && rc == 0; i++) {
        char **to = run_etcd_file_of(u, &tls_files[i]);
        for (size_t k = 0; k < 2 && rc == 0 && *to == NULL; k++) {
            rc = torchrun_conf_get(to, conf, tls_files[i].conf[k], err);
            if (rc == 0 && *to != NULL && !tls)
                rc = dd_err_set(err, -EINVAL,
                                "--rdzv-conf: '%s' needs TLS"
                                "\n  tip: use etcds:// in --rdzv-endpoint, or add "
                                "protocol=https if it is HOST:PORT",
                                tls_files[i].conf[k]);
            else if (rc == 0 && *to != NULL &&
                     !dd_utf8_is(*to)) /* the file name becomes part of a JSON text */
                rc = dd_err_set(err, -EINVAL,
                                "--rdzv-conf: the file name of '%s' is not valid UTF-8",
                                tls_files[i].conf[k]);
        }
    }
    if (rc == 0 && u->cert != NULL &&
        u->key == NULL) { /* with torchrun, one file may contain certificate and key */
        u->key = strdup(u->cert);
        rc = u->key == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    }
    if (rc == 0 && u->key != NULL && u->cert == NULL)
        rc = dd_err_set(err, -EINVAL,
                        "--rdzv-conf: key=FILE needs cert=FILE (with etcd-v2: ssl_cert_key=FILE "
                        "needs ssl_cert=FILE)");
    return rc;
}

static int run_etcd_find_files(struct run *r, struct dd_err *err)
{
    struct etcd_url *u = &r->etcd;
    const bool tls = strncmp(u->bases.v[0], "https:", 6) == 0;
    const char *options[sizeof(tls_files) / sizeof(tls_files[0])];
    DD_AUTO(free) char *protocol = NULL;
    int rc = torchrun_conf_get(&protocol, &r->o->rdzv_conf, "protocol", err);
    if (rc == 0 && !tls && protocol != NULL && strcasecmp(protocol, "https") == 0)
        rc = dd_err_set(
            err, -EINVAL,
            "--rdzv-conf has protocol=https, but etcd:// in --rdzv-endpoint means no TLS"
            "\n  tip: use etcds://");
    for (size_t i = 0; i < sizeof(tls_files) / sizeof(tls_files[0]); i++)
        options[i] = *run_etcd_file_of(u, &tls_files[i]) != NULL ? "--rdzv-endpoint"
                                                                 : "--rdzv-conf";
    if (rc == 0)
        rc = run_etcd_take_conf(u, &r->o->rdzv_conf, tls, err);
    for (size_t i = 0; i < sizeof(tls_files) / sizeof(tls_files[0]) && rc == 0; i++) {
        const char *path = *run_etcd_file_of(u, &tls_files[i]);
        rc = path != NULL ? run_etcd_check_file(options[i], &tls_files[i], path, err) : 0;
    }
    return rc;
}

int run_find_etcd(struct run *r, struct dd_err *err)
{
    const char *text = r->o->rdzv_endpoint;
    if (!etcd_url_is(text) || r->o->standalone)
        return 0;
    int rc = etcd_url_parse(&r->etcd, text, err);
    if (rc < 0)
        return dd_err_where(err, rc, "--rdzv-endpoint");
    rc = run_find_web(r, "--rdzv-endpoint with an etcd", err);
    if (rc == 0)
        rc = run_etcd_find_files(r, err);
    return rc == 0 ? run_etcd_read_password(r, err) : rc;
}
