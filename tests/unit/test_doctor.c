/* doctor: findings from the observations of nodes, and the transfer of observations to the asking
 * node. */
#include "doctor/answers.h"
#include "doctor/judge.h"
#include "doctor/look_lines.h"

#include <errno.h>
#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define HEALTHY                                                                                     \
    "'version':'1','nofile':65536,'memlock':-1,'nproc':-1,'shm_free':1000000000,'tmp':'','cpus':8," \
    "'addresses':['10.0.0.1'],'cpus_online':8,'gpus':4,'ptrace_scope':1,'key':'MUNGE','key_error':'','listen_error':''"

/* Return the findings for two nodes. The observation of the second one also has the members of
 * `more`, which replace earlier ones. */
static json_t *judged(const char *more)
{
    static const char *const names[] = {"n1", "n2"};
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    json_t *looks = json_array();
    assert_int_equal(hostlist_parse(&nodes, "n[1-2]", NULL), 0);
    for (int i = 0; i < 2; i++) {
        char text[4096];
        (void)snprintf(text, sizeof(text), "{'node':'%s','index':%d," HEALTHY "%s%s}", names[i], i,
                       i == 1 && *more != '\0' ? "," : "", i == 1 ? more : "");
        for (char *p = text; *p != '\0'; p++)
            if (*p == '\'')
                *p = '"';
        json_t *o = json_loads(text, 0, NULL);
        assert_non_null(o);
        assert_int_equal(json_array_append_new(looks, o), 0);
    }
    json_t *findings = doctor_judge(looks, nodes, NULL);
    assert_non_null(findings);
    json_decref(looks);
    return findings;
}

static void healthy_nodes_have_no_findings(void **state)
{
    (void)state;
    json_t *f = judged("");
    assert_int_equal(json_array_size(f), 0);
    json_decref(f);
}

static void each_fault_is_found_on_its_node(void **state)
{
    (void)state;
    static const struct {
        const char *more, *what;
        bool hint;
    } rows[] = {
        {"'nofile':256", "only 256 open files", false},
        {"'infiniband':true,'memlock':65536", "only 64 KiB", false},
        {"'nproc':100", "only 100 processes and threads", false},
        {"'shm_free':1048576", "/dev/shm has only 1024 KiB left", false},
        {"'tmp':'/scratch: No space left on device'",
         "cannot write temporary files: /scratch: No space", false},
        {"'ptrace_scope':3", "ptrace_scope", true},
        {"'gpus':3", "3 GPUs, where others have 4", false},
        {"'version':'2'", "ddrun is version 2, but on n1 it is 1", false},
        {"'key':'a file /home/u/k'", "the key source is a file /home/u/k, but on n1", false},
        {"'key_error':'no munged','key':''", "cannot get the job's key: no munged", false},
        {"'listen_error':'cannot listen on port 1'", "cannot listen on port 1", false},
        {"'iface_error':'--iface=ib9: no such interface'", "--iface=ib9: no such interface", false},
        {"'probes':[{'to':0,'error':'','iface':'ib0','iface_address':'10.1.0.1','iface_error':'No route'}]",
         "cannot reach the workers' address of n1, 10.1.0.1, through ib0: No route", false},
        {"'variables':[{'name':'RANK','value':'0','why':'left'}]", "RANK=0 is set", true},
        {"'variables':[{'name':'NCCL_SOCKET_IFNAME','value':'ib9','why':'interface'}]",
         "NCCL_SOCKET_IFNAME=ib9: no interface of this node", false},
        {"'variables':[{'name':'CUDA_VISIBLE_DEVICES','value':'','why':'empty'}]",
         "programs see no GPU", false},
        {"'probes':[{'to':0,'error':'nothing listens'}]", "cannot reach n1: nothing listens",
         false},
        {"'names':[{'to':0,'addresses':['10.0.0.9'],'error':''}]",
         "the name n1 resolves to 10.0.0.9", false},
        {"'names':[{'to':0,'addresses':['10.0.0.1'],'error':'unknown'}]",
         "cannot resolve the name n1: unknown", false},
        {"'probes':[{'to':0,'error':'','offset_ns':-600000000000}]",
         "the clock of n1 is 600 s behind", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *f = judged(rows[i].more);
        assert_int_equal(json_array_size(f), 1);
        const json_t *one = json_array_get(f, 0);
        assert_string_equal(json_string_value(json_object_get(one, "nodes")), "n2");
        assert_non_null(strstr(json_string_value(json_object_get(one, "what")), rows[i].what));
        assert_true(strlen(json_string_value(json_object_get(one, "do"))) > 0);
        assert_int_equal(json_is_true(json_object_get(one, "hint")), rows[i].hint);
        assert_int_equal(doctor_faults(f), rows[i].hint ? 0 : 1);
        json_decref(f);
    }
}

static void one_core_is_a_launchers_fault(void **state)
{
    (void)state;
    json_t *f = judged("'cpus':1");
    assert_int_equal(json_array_size(f), 2); /* the second one: fewer CPUs than other nodes */
    assert_non_null(
        strstr(json_string_value(json_object_get(json_array_get(f, 0), "what")), "1 of 8 CPUs"));
    json_decref(f);
}

static void nodes_that_share_a_fault_or_are_missing_are_named_together(void **state)
{
    (void)state;
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    json_t *looks = json_pack("[{s:s,s:i,s:i},{s:s,s:i,s:i}]", "node", "n1", "index", 0, "nofile",
                              9, "node", "n2", "index", 1, "nofile", 9);
    assert_int_equal(hostlist_parse(&nodes, "n[1-4]", NULL), 0);
    json_t *f = doctor_judge(looks, nodes, NULL);
    assert_int_equal(json_array_size(f), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(f, 0), "nodes")),
                        "n[3-4]");
    assert_string_equal(json_string_value(json_object_get(json_array_get(f, 1), "nodes")),
                        "n[1-2]");
    json_decref(f);
    json_decref(looks);
}

/* ---- answers ---- */

enum { HANG_S = 60, GIVE_MS = 300, LONG = 300000 };

struct told {
    struct event_base *base;
    int index, times;
    size_t n;
};

static void on_answer(void *arg, int index, const void *data, size_t n)
{
    struct told *t = arg;
    assert_int_equal(((const char *)data)[n - 1], 'x');
    t->index = index;
    t->n = n;
    t->times++;
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    const struct told *t = arg;
    (void)fd;
    (void)what;
    event_base_loopbreak(t->base);
}

static void on_done(void *arg)
{
    const struct told *t = arg;
    event_base_loopbreak(t->base);
}

static int give(uint16_t port, int index, const char *cookie, unsigned limit_ms)
{
    static char text[LONG];
    static char also[] = "127.0.0.2";
    static char here[] = "127.0.0.1";
    static char *const hosts[] = {also, here, NULL};
    static char *none[] = {NULL};
    const struct answer a = {.id = "look",
                             .index = index,
                             .port = port,
                             .hosts = hosts,
                             .key_in = {.env = none, .psk = cookie},
                             .limit_ms = limit_ms};
    struct dd_err err = {.text = ""};
    memset(text, 'x', sizeof(text));
    int rc = answer_give(&a, text, sizeof(text), &err);
    return rc == 0 || err.text[0] != '\0' ? -rc : 99;
}

static void what_a_node_has_seen_comes_to_the_asking_one_if_it_has_the_key(void **state)
{
    (void)state;
    static const struct {
        int index;
        const char *cookie;
        int rc, times;
    } rows[] = {
        {2, "0123456789abcdef0123456789abcdef", 0, 1},
        {2, "other56789abcdef0123456789abcdef", ETIMEDOUT, 0},
        {3, "0123456789abcdef0123456789abcdef", ETIMEDOUT, 0}, /* not a node of the job */
    };
    char *none[] = {NULL};
    (void)alarm(HANG_S);
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct told t = {.base = event_base_new()};
        struct answers *a = NULL;
        struct dd_err err = {.text = ""};
        const struct answers_cfg cfg = {
            .id = "look",
            .nnodes = 3,
            .on_answer = on_answer,
            .arg = &t,
            .key_in = {.env = none, .psk = "0123456789abcdef0123456789abcdef"}};
        struct event *end = evsignal_new(t.base, SIGCHLD, on_child, &t);
        int status = 0;
        assert_int_equal(event_add(end, NULL), 0);
        if (answers_new(&a, t.base, &cfg, &err) != 0)
            fail_msg("%s", err.text);
        const pid_t pid = fork();
        if (pid == 0) /* a refused child gives up soon, an accepted one has enough time */
            _exit(give(answers_port(a), rows[i].index, rows[i].cookie,
                       rows[i].rc == 0 ? HANG_S * 1000 : GIVE_MS));
        event_base_dispatch(t.base);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), rows[i].rc);
        assert_int_equal(t.times, rows[i].times);
        if (rows[i].times > 0) {
            assert_int_equal(t.index, rows[i].index);
            assert_int_equal(t.n, LONG);
        }
        answers_free(a);
        event_free(end);
        event_base_free(t.base);
    }
    (void)alarm(0);
    answers_free(NULL);
}

/* The asking node exits after the last answer; by then every node must have its acknowledgement. */
static void each_node_knows_that_its_answer_has_come_when_the_asking_one_ends(void **state)
{
    (void)state;
    enum { NODES = 3 };
    static const char cookie[] = "0123456789abcdef0123456789abcdef";
    char *none[] = {NULL};
    struct told t = {.base = event_base_new()};
    struct answers *a = NULL;
    struct dd_err err = {.text = ""};
    const struct answers_cfg cfg = {.id = "look",
                                    .nnodes = NODES,
                                    .on_answer = on_answer,
                                    .on_done = on_done,
                                    .arg = &t,
                                    .key_in = {.env = none, .psk = cookie}};
    pid_t pids[NODES];
    (void)alarm(HANG_S);
    (void)signal(SIGPIPE, SIG_IGN);
    if (answers_new(&a, t.base, &cfg, &err) != 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < NODES; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(give(answers_port(a), i, cookie, HANG_S * 1000));
    }
    event_base_dispatch(t.base);
    assert_int_equal(t.times, NODES);
    answers_free(a);
    event_base_free(t.base);
    for (int i = 0; i < NODES; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    (void)alarm(0);
}

static void a_place_for_answers_is_a_port_and_hosts(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "/",
                                      "1",
                                      "1/",
                                      "0/a",
                                      "65536/a",
                                      "x/a",
                                      "12345678901/a",
                                      "1/a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        DD_AUTO(strv) struct dd_strv hosts = {0};
        uint16_t port = 0;
        assert_int_equal(answer_parse_place(bad[i], &port, &hosts, NULL), -EINVAL);
    }
    DD_AUTO(strv) struct dd_strv hosts = {0};
    uint16_t port = 0;
    assert_int_equal(answer_parse_place("65535/node1,fe80::1", &port, &hosts, NULL), 0);
    assert_int_equal(port, 65535);
    assert_int_equal(hosts.n, 2);
    assert_string_equal(hosts.v[1], "fe80::1");
}

struct taken {
    int n;
    size_t len;
    char last[4096];
};

static void on_look(void *arg, const void *data, size_t n)
{
    struct taken *t = arg;
    t->n++;
    t->len = n;
    assert_true(n < sizeof(t->last));
    memcpy(t->last, data, n);
    t->last[n] = '\0';
}

static void take_lines(struct look_lines *l, const char *text, size_t len, struct taken *t)
{
    for (const char *p = text; p < text + len;) {
        const size_t n = strcspn(p, "\n");
        assert_true(n < 1200); /* srun splits lines of more than 2 KB */
        assert_true(look_lines_take(l, p, n, on_look, t));
        p += n + 1;
    }
}

static void a_look_comes_back_from_its_lines(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    struct look_lines *l = NULL;
    struct taken t = {0};
    char look[2501];
    for (size_t i = 0; i < sizeof(look) - 1; i++)
        look[i] = i % 7 == 0 ? ' ' : (char)('a' + i % 26); /* spaces at the ends of lines, too */
    look[sizeof(look) - 1] = '\0';
    assert_int_equal(look_lines_new(&l, 2), 0);
    assert_int_equal(look_lines_write(&out, 1, look, sizeof(look) - 1), 0);
    const char *text = dd_buf_str(&out);
    assert_non_null(text);
    take_lines(l, text, strlen(text), &t);
    assert_int_equal(t.n, 1);
    assert_string_equal(t.last, look);
    look_lines_free(l);
}

static void other_lines_are_no_part_of_a_look(void **state)
{
    (void)state;
    static const char *const lines[] = {"",
                                        "Warning: Permanently added 'node2'",
                                        "ddrun-doctor",
                                        "ddrun-doctor 0 last",
                                        "ddrun-doctor 2 last {}", /* there are nodes 0 and 1 */
                                        "ddrun-doctor -1 last {}"};
    struct look_lines *l = NULL;
    struct taken t = {0};
    assert_int_equal(look_lines_new(&l, 2), 0);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        assert_false(look_lines_take(l, lines[i], strlen(lines[i]), on_look, &t));
    assert_true(look_lines_take(l, "ddrun-doctor 0 last {}", 22, on_look, &t));
    assert_int_equal(t.n, 1);
    assert_string_equal(t.last, "{}");
    look_lines_free(l);
}

/* Nodes without GPUs and nodes of another fabric get no advice. */
static void advice_is_a_hint_for_nodes_with_gpus_of_that_fabric(void **state)
{
    (void)state;
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    json_t *advice = json_pack("{s:[{s:s,s:s}]}", "roce", "what", "X is not set", "do", "reason");
    json_t *looks = json_pack("[{s:s,s:i,s:i,s:s},{s:s,s:i,s:i,s:s},{s:s,s:i,s:i,s:s}]", "node",
                              "n1", "index", 0, "gpus", 4, "fabric", "roce", "node", "n2", "index",
                              1, "gpus", 4, "fabric", "efa", "node", "n3", "index", 2, "gpus", 4,
                              "fabric", "roce");
    assert_int_equal(hostlist_parse(&nodes, "n[1-3]", NULL), 0);
    json_t *f = doctor_judge(looks, nodes, advice);
    assert_int_equal(json_array_size(f), 1);
    assert_int_equal(doctor_faults(f), 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(f, 0), "nodes")),
                        "n[1,3]");
    json_decref(f);
    size_t i;
    json_t *l;
    json_array_foreach (looks, i, l)
        assert_int_equal(json_object_set_new(l, "gpus", json_integer(0)), 0);
    f = doctor_judge(looks, nodes, advice);
    assert_int_equal(json_array_size(f), 0);
    json_decref(f);
    json_decref(looks);
    json_decref(advice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_comes_back_from_its_lines),
        cmocka_unit_test(other_lines_are_no_part_of_a_look),
        cmocka_unit_test(healthy_nodes_have_no_findings),
        cmocka_unit_test(advice_is_a_hint_for_nodes_with_gpus_of_that_fabric),
        cmocka_unit_test(each_fault_is_found_on_its_node),
        cmocka_unit_test(one_core_is_a_launchers_fault),
        cmocka_unit_test(nodes_that_share_a_fault_or_are_missing_are_named_together),
        cmocka_unit_test(what_a_node_has_seen_comes_to_the_asking_one_if_it_has_the_key),
        cmocka_unit_test(each_node_knows_that_its_answer_has_come_when_the_asking_one_ends),
        cmocka_unit_test(a_place_for_answers_is_a_port_and_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
