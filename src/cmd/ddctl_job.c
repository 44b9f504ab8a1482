#include "cmd/ddctl_job.h"

#include "base/io.h"
#include "base/strv.h"
#include "base/uid.h"
#include "cmd/common.h"
#include "net/local_socket.h"
#include "net/link.h"
#include "net/loop.h"
#include "rdzv/msg.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GREETING_S = 3, /* limit for the greeting: a stopped agent does not send one */
    ANSWER_S = 30,
    ANSWER_MAX = 64 << 20,
};

/* An agent of this user on this machine. */
struct agent_here {
    struct asking *asking;
    struct link *link; /* NULL: closed */
    char *node, *job;  /* NULL: no greeting yet */
};

struct asking {
    const struct job_question *q;
    struct event_base *base;
    struct event *timer;
    struct agent_here *v;
    size_t n;
    size_t silent;                   /* agents that have sent no greeting */
    size_t busy;                     /* sockets of unknown owner that accepted no connection */
    const struct agent_here *chosen; /* NULL: not chosen yet */
    struct dd_buf answer;
    struct dd_err *err;
    int rc;
    bool over, late;
};

static void ddctl_job_end(struct asking *k, int rc)
{
    k->rc = rc;
    k->over = true;
    (void)event_base_loopbreak(k->base);
}

static void ddctl_job_on_late(evutil_socket_t fd, short what, void *arg)
{
    struct asking *k = arg;
    (void)fd;
    (void)what;
    k->late = true;
    (void)event_base_loopbreak(k->base);
}

/* Keep the identity of an agent. End the wait if all agents have sent theirs, or if this one has
 * exactly the id that the user gave. */
static void ddctl_job_greeted(struct agent_here *a, const struct msg_identity *m)
{
    struct asking *k = a->asking;
    if (a->job != NULL)
        return;
    a->node = strdup(m->name);
    a->job = a->node != NULL ? strdup(m->text) : NULL;
    if (a->job == NULL) {
        free(DD_TAKE(a->node));
        return;
    }
    k->silent--;
    if (k->silent == 0 || (k->q->job != NULL && strcmp(a->job, k->q->job) == 0))
        (void)event_base_loopbreak(k->base);
}

static void ddctl_job_answered(struct asking *k, const struct msg_ctl_reply *m)
{
    int rc = 0;
    if (!m->ok)
        rc = dd_err_set(k->err, -EINVAL, "%s",
                        m->detail[0] != '\0' ? m->detail : "ddrun refused the request");
    else if (k->q->on_piece != NULL)
        rc = k->q->on_piece(k->q->arg, m->detail);
    else
        rc = dd_buf_puts(&k->answer, m->detail);
    if (rc < 0 && k->err->text[0] == '\0') /* no memory, or the buffer is full */
        rc = dd_err_set(k->err, rc, "cannot store the answer of ddrun: %s",
                        rc == -EMSGSIZE ? "it is too long" : strerror(-rc));
    if (k->q->on_piece != NULL)
        (void)event_del(k->timer); /* the next piece may arrive much later */
    if (m->ends || rc != 0)
        ddctl_job_end(k, rc < 0 ? rc : 0);
}

static void ddctl_job_on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct agent_here *a = arg;
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    (void)l;
    int rc = f->type == FRAME_CONTROL ? msg_decode(&m, f->data, f->len, &err) : -ENOMSG;
    if (rc < 0 && rc != -ENOMSG && a->asking->chosen == a)
        ddctl_job_end(a->asking,
                      dd_err_set(a->asking->err, rc, "cannot read a message from ddrun on %s: %s",
                                 a->node, err.text));
    if (rc < 0)
        return;
    if (a->asking->chosen == NULL && m.type == MSG_IDENTITY)
        ddctl_job_greeted(a, &m.identity);
    else if (a->asking->chosen == a && m.type == MSG_CTL_REPLY)
        ddctl_job_answered(a->asking, &m.ctl_reply);
}

static void ddctl_job_on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct agent_here *a = arg;
    struct asking *k = a->asking;
    (void)clean;
    link_free(l);
    a->link = NULL;
    if (k->chosen == a && k->q->on_piece != NULL)
        ddctl_job_end(k, 0); /* the request ends with the job */
    else if (k->chosen == a)
        ddctl_job_end(k, dd_err_set(k->err, -ECONNRESET,
                                    "ddrun on %s did not complete its answer: %s", a->node, why));
    else if (k->chosen == NULL && a->job == NULL && --k->silent == 0)
        (void)event_base_loopbreak(k->base);
}

/* Connect to all agents. Takes ownership of the descriptors. */
static void ddctl_job_call_all(struct asking *k, const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct agent_here *a = &k->v[k->n];
        const struct link_cb cb = {
            .on_frame = ddctl_job_on_frame, .on_close = ddctl_job_on_close, .arg = a};
        *a = (struct agent_here){.asking = k};
        if (link_new_trusted(&a->link, k->base, fds[i], &cb, NULL) == 0)
            k->n++;
        else
            close(fds[i]);
    }
    k->silent = k->n;
}

/* Run the loop until a callback ends it, or until the time limit. */
static void ddctl_job_wait_for(struct asking *k, int seconds)
{
    const struct timeval t = {.tv_sec = seconds};
    k->late = false;
    (void)evtimer_add(k->timer, &t);
    (void)event_base_dispatch(k->base);
    (void)event_del(k->timer);
}

/* ---- which job ---- */

/* True if `wanted` is the job id, or a part of the id between dots. */
static bool ddctl_job_is_part(const char *job, const char *wanted)
{
    const size_t n = strlen(wanted);
    for (const char *at = strstr(job, wanted); at != NULL && n > 0; at = strstr(at + 1, wanted))
        if ((at == job || at[-1] == '.') && (at[n] == '\0' || at[n] == '.'))
            return true;
    return false;
}

static bool ddctl_job_fits(const struct agent_here *a, const char *wanted)
{
    return a->job != NULL && (wanted == NULL || ddctl_job_is_part(a->job, wanted));
}

/* Append the ids of the jobs that can be asked, each once. */
static void ddctl_job_put_jobs(const struct asking *k, struct dd_buf *out)
{
    for (size_t i = 0; i < k->n; i++) {
        bool again = k->v[i].job == NULL || k->v[i].link == NULL;
        for (size_t j = 0; j < i && !again; j++)
            again = k->v[j].job != NULL && k->v[j].link != NULL &&
                    strcmp(k->v[j].job, k->v[i].job) == 0;
        if (!again)
            (void)dd_buf_printf(out, "%s%s", out->len > 0 ? ", " : "", k->v[i].job);
    }
}

/* Set the error if no job was found. wanted: --job, or NULL. */
static int ddctl_job_no_job(const struct asking *k, const char *wanted, struct dd_err *err)
{
    char host[256] = "this machine";
    DD_AUTO(buf) struct dd_buf jobs = DD_BUF_INIT(1 << 16);
    (void)gethostname(host, sizeof(host) - 1);
    ddctl_job_put_jobs(k, &jobs);
    const char *names = dd_buf_str(&jobs);
    char busy[128] = "";
    if (k->busy > 0)
        (void)snprintf(busy, sizeof(busy),
                       "; %zu socket%s like ddrun's accept%s no connection (another user may be "
                       "flooding %s)",
                       k->busy, k->busy == 1 ? "" : "s", k->busy == 1 ? "s" : "",
                       k->busy == 1 ? "it" : "them");
    if (k->silent > 0)
        return dd_err_set(err, -ETIMEDOUT,
                          "%zu of %zu ddrun process%s of yours on %.200s did not answer within "
                          "%d s; %s may be stopped%s",
                          k->silent, k->n, k->n == 1 ? "" : "es", host, GREETING_S,
                          k->silent == 1 ? "it" : "they", busy);
    if (k->busy > 0)
        return dd_err_set(err, -ETIMEDOUT, "no ddrun job%s%.200s of yours answered on %.100s%s",
                          wanted != NULL ? " " : "", wanted != NULL ? wanted : "", host, busy);
    if (names == NULL || names[0] == '\0')
        return dd_err_tip(
            err, dd_err_set(err, -ENOENT, "no ddrun job of yours is running on %.200s", host),
            "run ddctl on a node of the job: ssh NODE ddctl status; with Slurm: srun --overlap "
            "--jobid=ID -N1 -n1 ddctl status");
    return dd_err_set(err, -EINVAL,
                      "no job '%.200s' of yours is running on %.100s; running jobs: %.600s", wanted,
                      host, names);
}

/* Return an agent of the job with exactly this id, or NULL. */
static const struct agent_here *ddctl_job_exact(const struct asking *k, const char *wanted)
{
    for (size_t i = 0; wanted != NULL && i < k->n; i++)
        if (k->v[i].link != NULL && k->v[i].job != NULL && strcmp(k->v[i].job, wanted) == 0)
            return &k->v[i];
    return NULL;
}

/* Set the error for an agent that has not answered: it may belong to another job, so without --job
 * the choice is ambiguous. */
static void ddctl_job_uncertain(const struct agent_here *found, struct dd_err *err)
{
    int rc = dd_err_set(err, -ETIMEDOUT,
                        "another ddrun on this node, perhaps of another job than %.200s, did not "
                        "answer within %d s",
                        found->job, GREETING_S);
    (void)dd_err_tip(err, rc, "choose the job with --job=%.200s", found->job);
}

/* Return NULL with an error if no job, or more than one job, matches. */
static const struct agent_here *ddctl_job_choose(const struct asking *k, const char *wanted,
                                                 struct dd_err *err)
{
    const struct agent_here *found = ddctl_job_exact(k, wanted);
    if (found != NULL)
        return found;
    for (size_t i = 0; i < k->n; i++) {
        const struct agent_here *a = &k->v[i];
        if (!ddctl_job_fits(a, wanted) || a->link == NULL)
            continue;
        if (found != NULL && strcmp(found->job, a->job) != 0) {
            DD_AUTO(buf) struct dd_buf jobs = DD_BUF_INIT(1 << 16);
            ddctl_job_put_jobs(k, &jobs);
            const char *names = dd_buf_str(&jobs);
            (void)dd_err_tip(err,
                             dd_err_set(err, -EINVAL,
                                        "several jobs of yours are running here: %.400s",
                                        names != NULL ? names : "?"),
                             "choose one with --job=ID; 'ddctl jobs' lists them");
            return NULL;
        }
        found = found != NULL ? found : a;
    }
    if (found != NULL && wanted == NULL && k->silent > 0) {
        ddctl_job_uncertain(found, err);
        return NULL;
    }
    if (found == NULL)
        (void)ddctl_job_no_job(k, wanted, err);
    return found;
}

/* Among several jobs, choose the one of the scheduler's job that this process belongs to. If there
 * is none, the error of the first ddctl_job_choose() remains. */
static const struct agent_here *ddctl_job_choose_ours(const struct asking *k, struct dd_err *err)
{
    char own[ALLOC_ID_SIZE];
    const struct agent_here *a = ddctl_job_choose(k, k->q->job, err);
    for (size_t i = 0; a == NULL && k->q->job == NULL && alloc_table[i] != NULL; i++)
        if (alloc_table[i]->own != NULL && alloc_table[i]->own(environ, own))
            a = ddctl_job_choose(k, own, NULL);
    return a;
}

/* ---- request and answer ---- */

static int ddctl_job_send_question(struct asking *k)
{
    DD_AUTO(free) char *text = NULL;
    int rc = msg_encode(&text, MSG(CTL_REQUEST, .id = 1, .what = k->q->what, .text = k->q->text));
    if (rc == 0)
        rc = link_send(k->chosen->link, FRAME_CONTROL, text, strlen(text));
    return rc < 0 ? dd_err_set(k->err, rc, "cannot send a request to ddrun on %s: %s",
                               k->chosen->node, strerror(-rc))
                  : 0;
}

static int ddctl_job_converse(struct asking *k)
{
    const struct agent_here *chosen = ddctl_job_choose_ours(k, k->err);
    if (chosen == NULL)
        return k->err->rc;
    k->chosen = chosen;
    k->err->text[0] = '\0';
    int rc = ddctl_job_send_question(k);
    if (rc < 0)
        return rc;
    ddctl_job_wait_for(k, ANSWER_S);
    if (!k->over)
        return dd_err_set(k->err, -ETIMEDOUT,
                          "no complete answer from the daemon of job %.200s within %d s",
                          chosen->job, ANSWER_S);
    return k->rc;
}

static int ddctl_job_read_answer(json_t **ret, const struct asking *k)
{
    json_error_t je;
    *ret = json_loadb((const char *)k->answer.data, k->answer.len, 0, &je);
    return json_is_object(*ret)
               ? 0
               : dd_err_set(k->err, -EPROTO, "malformed answer from the job's daemon: %s",
                            *ret == NULL ? je.text : "expected a JSON object");
}

static void ddctl_job_asking_done(struct asking *k)
{
    for (size_t i = 0; i < k->n; i++) {
        link_free(k->v[i].link);
        free(k->v[i].node);
        free(k->v[i].job);
    }
    free(k->v);
    dd_buf_done(&k->answer);
    if (k->timer != NULL)
        event_free(k->timer);
    if (k->base != NULL)
        event_base_free(k->base);
}

/* Connect to all agents of this user on this machine, and wait for their greetings. */
static int ddctl_job_open(struct asking *k, struct dd_err *err)
{
    DD_AUTO(free) int *fds = NULL;
    size_t n = 0;
    k->err = err;
    k->answer = DD_BUF_INIT(ANSWER_MAX);
    k->base = net_loop_new();
    int rc = dd_uid_check(err);
    if (rc < 0)
        return rc;
    rc = local_socket_connect(&fds, &n, &k->busy);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot list the jobs on this node: %s", strerror(-rc));
    k->v = calloc(n + 1, sizeof(*k->v));
    k->timer = k->base != NULL ? evtimer_new(k->base, ddctl_job_on_late, k) : NULL;
    if (k->v == NULL || k->timer == NULL) {
        for (size_t i = 0; i < n; i++)
            close(fds[i]);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    ddctl_job_call_all(k, fds, n);
    if (k->silent > 0)
        ddctl_job_wait_for(k, GREETING_S);
    return 0;
}

int job_ask(json_t **ret, const struct job_question *q, struct dd_err *err)
{
    struct asking k = {.q = q};
    int rc = ddctl_job_open(&k, err);
    if (rc == 0)
        rc = ddctl_job_converse(&k);
    *ret = NULL;
    if (rc == 0 && q->on_piece == NULL)
        rc = ddctl_job_read_answer(ret, &k);
    ddctl_job_asking_done(&k);
    return rc;
}

int job_list(struct dd_strv *ret, size_t *ret_silent, struct dd_err *err)
{
    const struct job_question none = {.what = "", .text = ""};
    struct asking k = {.q = &none};
    int rc = ddctl_job_open(&k, err);
    for (size_t i = 0; rc == 0 && i < k.n; i++)
        if (k.v[i].job != NULL && ddctl_job_exact(&k, k.v[i].job) == &k.v[i] &&
            dd_strv_push(ret, k.v[i].job) < 0)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    *ret_silent = k.silent + k.busy;
    ddctl_job_asking_done(&k);
    return rc;
}

const struct opt_foreign job_json[] = {{.word = "--json", .is = "format=json"}, {0}};

int job_no_operands(const struct opt_result *res, int argc, char **argv, struct dd_err *err)
{
    return res->script < argc ? dd_err_tip(err,
                                           dd_err_set(err, -EINVAL, "unexpected argument '%.60s'",
                                                      argv[res->script]),
                                           "--job=ID selects a job")
                              : 0;
}

int job_fail(const struct opt_table *t, int rc, const struct dd_err *err)
{
    int code = cmd_fail(t, err);
    return rc == -EINVAL ? code : 1;
}

const char *json_text(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    return text != NULL ? text : "";
}

int json_number(const json_t *o, const char *name, int otherwise)
{
    const json_t *v = json_object_get(o, name);
    const json_int_t i = json_integer_value(v);
    return json_is_integer(v) && i >= INT_MIN && i <= INT_MAX ? (int)i : otherwise;
}
