#include "launch/ticket.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/num.h"
#include "hostlist/hostlist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word;
    bool has_path;
} keys[] = {
    [LAUNCH_KEY_OFFERED] = {"", false},      [LAUNCH_KEY_STDIN] = {"key", false},
    [LAUNCH_KEY_FILE] = {"file", true},      [LAUNCH_KEY_MUNGE] = {"munge", true},
    [LAUNCH_KEY_COOKIE] = {"cookie", false},
};

static enum launch_key key_of(const char *word)
{
    for (size_t i = 1; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(word, keys[i].word) == 0)
            return (enum launch_key)i;
    return LAUNCH_KEY_OFFERED;
}

/* Parse INDEX/PORT/ID/[KEY/]HOSTS[/PATH]; modifies text. */
static int ticket_fields(struct launch_ticket *t, char *text)
{
    const char *index = strsep(&text, "/");
    const char *number = strsep(&text, "/");
    const char *id = strsep(&text, "/");
    const char *hosts = strsep(&text, "/");
    int port;
    if (hosts != NULL && text != NULL && (t->key = key_of(hosts)) != LAUNCH_KEY_OFFERED)
        hosts = strsep(&text, "/");
    if (hosts == NULL || (text != NULL) != keys[t->key].has_path || id[0] == '\0' ||
        strlen(id) >= sizeof(t->id) || dd_num_int(index, 0, HOSTLIST_MAX - 1, &t->index) < 0 ||
        dd_num_int(number, 1, UINT16_MAX, &port) < 0)
        return -EINVAL;
    t->port = (uint16_t)port;
    memcpy(t->id, id, strlen(id) + 1);
    if (text != NULL && asprintf(&t->path, "/%s", text) < 0) {
        t->path = NULL;
        return -ENOMEM;
    }
    int rc = dd_strv_split(&t->hosts, hosts, ",");
    return rc == 0 && (t->hosts.n == 0 || t->hosts.n > LAUNCH_HOSTS_MAX) ? -EINVAL : rc;
}

int launch_ticket_parse(struct launch_ticket *ret, const char *text, struct dd_err *err)
{
    DD_AUTO(free) char *copy = strdup(text);
    struct launch_ticket t = {0};
    int rc = copy == NULL ? -ENOMEM : ticket_fields(&t, copy);
    if (rc < 0) {
        launch_ticket_done(&t);
        return dd_err_set(
            err, rc,
            "cannot parse --launched=%.200s, an option that ddrun passes to the nodes that it "
            "starts: %s",
            text, strerror(-rc));
    }
    *ret = t;
    return 0;
}

char *launch_ticket_argument(const struct launch_ticket *t)
{
    const char *word = keys[t->key].word;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(8192);
    int rc = dd_buf_printf(&out, "--launched=%d/%u/%s%s%s/", t->index, t->port, t->id,
                           word[0] != '\0' ? "/" : "", word);
    for (size_t i = 0; i < t->hosts.n && i < LAUNCH_HOSTS_MAX && rc == 0; i++)
        rc = dd_buf_printf(&out, "%s%s", i > 0 ? "," : "", t->hosts.v[i]);
    if (rc == 0 && keys[t->key].has_path)
        rc = dd_buf_puts(&out, t->path);
    return rc == 0 ? dd_buf_steal(&out) : NULL;
}

void launch_ticket_done(struct launch_ticket *t)
{
    dd_strv_done(&t->hosts);
    free(t->path);
    t->path = NULL;
}
