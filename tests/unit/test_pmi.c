/* pmi: the lines of PMI-1, the values that nodes exchange through them, and the server on socket
 * pairs. */
#include "base/auto.h"
#include "pmi/hmsg.h"
#include "pmi/kvs.h"
#include "pmi/pmi_client.h"
#include "pmi/pmi1.h"
#include "pmi/pmi1_wire.h"

#include <errno.h>
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <cmocka.h>

static void lines_are_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int rc;
        enum pmi_cmd cmd;
        const char *key, *value;
    } rows[] = {
        {"cmd=put kvsname=k key=a value=b=c", 0, PMI_PUT, "a", "b=c"},
        {"cmd=put value=b key=a kvsname=k thrid=1", 0, PMI_PUT, "a", "b"},
        {"cmd=put kvsname=k  key=a   value=b ", 0, PMI_PUT, "a", "b"},
        {"cmd=put kvsname=k key=a value=b value=c", 0, PMI_PUT, "a", "b"},
        {"cmd=put kvsname=k key=a value=", 0, PMI_PUT, "a", ""},
        {"cmd=put kvsname=k key=a", -EPROTO, 0, NULL, NULL},
        {"cmd=get kvsname=k", -EPROTO, 0, NULL, NULL},
        {"cmd=init", -EPROTO, 0, NULL, NULL},
        {"cmd=init pmi_version=1 pmi_subversion=1", 0, PMI_INIT, NULL, NULL},
        {"cmd=barrier_in", 0, PMI_BARRIER_IN, NULL, NULL},
        {"cmd=abort exitcode=42", 0, PMI_ABORT, NULL, NULL},
        {"mcmd=spawn", 0, PMI_SPAWN, NULL, NULL},
        {"endcmd", 0, PMI_ENDCMD, NULL, NULL},
        {"cmd=putt key=a", 0, PMI_OTHER, NULL, NULL},
        {"", 0, PMI_OTHER, NULL, NULL},
        {"put", 0, PMI_OTHER, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char line[128];
        struct pmi_request r;
        struct dd_err err = {0};
        strcpy(line, rows[i].line);
        assert_int_equal(pmi_request_parse(&r, line, strlen(line), &err), rows[i].rc);
        if (rows[i].rc < 0) {
            assert_string_not_equal(err.text, "");
            continue;
        }
        assert_int_equal(r.cmd, rows[i].cmd);
        assert_int_equal(r.key == NULL, rows[i].key == NULL);
        assert_int_equal(r.value == NULL, rows[i].value == NULL);
        if (r.key != NULL)
            assert_string_equal(r.key, rows[i].key);
        if (r.value != NULL)
            assert_string_equal(r.value, rows[i].value);
    }
}

static void names_that_are_too_long_are_refused(void **state)
{
    (void)state;
    char line[2048];
    struct pmi_request r;
    for (int over = 0; over < 2; over++) {
        int n = snprintf(line, sizeof(line), "cmd=put kvsname=k key=%0*d value=v",
                         PMI_NAME_MAX - 1 + over, 1);
        assert_int_equal(pmi_request_parse(&r, line, (size_t)n, NULL), over ? -EPROTO : 0);
        n = snprintf(line, sizeof(line), "cmd=put kvsname=k key=k value=%0*d",
                     PMI_VALUE_MAX - 1 + over, 1);
        assert_int_equal(pmi_request_parse(&r, line, (size_t)n, NULL), over ? -EPROTO : 0);
    }
    assert_int_equal(pmi_request_parse(&r, memcpy(line, "cmd=get\0x", 9), 9, NULL), -EPROTO);
}

static void nodes_of_the_same_size_are_one_block(void **state)
{
    (void)state;
    static const struct {
        int sizes[5], n;
        const char *text;
    } rows[] = {
        {{4}, 1, "(vector,(0,1,4))"},
        {{2, 2, 2}, 3, "(vector,(0,3,2))"},
        {{2, 2, 1, 3, 3}, 5, "(vector,(0,2,2),(2,1,1),(3,2,3))"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 16);
        assert_int_equal(pmi_mapping(&b, rows[i].sizes, rows[i].n), 0);
        assert_string_equal(dd_buf_str(&b), rows[i].text);
    }
    int many[400];
    for (int i = 0; i < 400; i++)
        many[i] = i % 2 + 1;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 16);
    assert_int_equal(pmi_mapping(&b, many, 400), -EMSGSIZE);
}

static void what_is_put_reaches_the_other_node(void **state)
{
    (void)state;
    static const unsigned char seed[16] = {1};
    struct kvs *a;
    struct kvs *b;
    size_t n;
    assert_int_equal(kvs_new(&a, seed), 0);
    assert_int_equal(kvs_new(&b, seed), 0);
    assert_int_equal(kvs_set(a, "mine", "1"), 0);
    assert_int_equal(kvs_put(a, "k", "old"), 0);
    assert_int_equal(kvs_put(a, "k", "new"), 0);
    assert_int_equal(kvs_put(a, "empty", "x"), 0);
    const void *news = kvs_news(a, &n);
    for (size_t cut = 1; cut < n; cut++) { /* no truncation causes a read past the end */
        struct kvs *c;
        void *copy = malloc(cut);
        assert_non_null(copy);
        memcpy(copy, news, cut);
        assert_int_equal(kvs_new(&c, seed), 0);
        int rc = kvs_take(c, copy, cut, NULL);
        assert_true(rc == 0 || rc == -EPROTO);
        kvs_free(c);
        free(copy);
    }
    assert_int_equal(kvs_take(b, news, n, NULL), 0);
    assert_string_equal(kvs_get(b, "k"), "new");
    assert_string_equal(kvs_get(b, "empty"), "x");
    assert_null(kvs_get(b, "mine"));
    kvs_news_told(a);
    (void)kvs_news(a, &n);
    assert_int_equal(n, 0);
    assert_string_equal(kvs_get(a, "k"), "new");
    kvs_free(a);
    kvs_free(b);
}

static void the_helpers_messages_come_whole_or_not_at_all(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(HMSG_MAX + HMSG_HEAD);
    static const char texts[] = "one\0\0two";
    struct hmsg m;
    size_t at = 0;
    assert_int_equal(hmsg_encode(&b, &(struct hmsg){.type = HMSG_ABORTED,
                                                    .id = 7,
                                                    .code = -42,
                                                    .data = (const unsigned char *)texts,
                                                    .len = sizeof(texts)}),
                     0);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(hmsg_decode(&m, b.data, n), 0);
    assert_int_equal(hmsg_decode(&m, b.data, b.len), b.len);
    assert_int_equal(m.id, 7);
    assert_int_equal(m.code, -42);
    assert_string_equal(hmsg_text(&m, &at), "one");
    assert_string_equal(hmsg_text(&m, &at), "");
    assert_string_equal(hmsg_text(&m, &at), "two");
    assert_null(hmsg_text(&m, &at));
    b.data[3] = 0x7f; /* a length above the limit */
    assert_int_equal(hmsg_decode(&m, b.data, b.len), -EPROTO);
}

/* Run the client on prepared replies of the launcher. *asked: the client's requests. */
static int gathered(const char *answers, struct dd_strv *texts, char *asked, size_t size,
                    struct dd_err *err)
{
    int pair[2];
    char fd[32];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(write(pair[1], answers, strlen(answers)), strlen(answers));
    (void)snprintf(fd, sizeof(fd), "PMI_FD=%d", pair[0]);
    char *env[] = {fd, (char[]){"PMI_RANK=1"}, (char[]){"PMI_SIZE=2"}, NULL};
    int rc = pmi_client_gather(texts, env, "me/1/2", 20, err);
    ssize_t n = recv(pair[1], asked, size - 1, MSG_DONTWAIT);
    asked[n > 0 ? n : 0] = '\0';
    close(pair[1]);
    return rc;
}

#define BEFORE                                                                                     \
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=my_kvsname rc=0 kvsname=kvs_9\n"

static void agents_find_each_other_through_an_outer_launcher(void **state)
{
    (void)state;
    DD_AUTO(strv) struct dd_strv texts = {0};
    char asked[1024];
    assert_int_equal(
        gathered(BEFORE "cmd=put_result rc=0 msg=success\ncmd=barrier_out rc=0\n"
                        "cmd=get_result rc=0 msg=success value=first/3/4\n"
                        "cmd=get_result rc=0 msg=success value=me/1/2\ncmd=finalize_ack rc=0\n",
                 &texts, asked, sizeof(asked), NULL),
        0);
    assert_int_equal(texts.n, 2);
    assert_string_equal(texts.v[0], "first/3/4");
    assert_non_null(
        strstr(asked, "cmd=put kvsname=kvs_9 key=ddrun-1 value=me/1/2\ncmd=barrier_in\n"));
    assert_non_null(strstr(asked, "cmd=get kvsname=kvs_9 key=ddrun-0\n"));
    assert_non_null(strstr(asked, "cmd=finalize\n"));
}

static void an_outer_launcher_that_answers_badly_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *answers, *text;
    } rows[] = {
        {"", "timed out"},
        {BEFORE "cmd=put_result rc=-1 msg=no_room\n", "no_room"},
        {"cmd=response_to_init rc=0\ncmd=my_kvsname rc=0\n", "my_kvsname"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv texts = {0};
        struct dd_err err = {0};
        char asked[1024];
        assert_true(gathered(rows[i].answers, &texts, asked, sizeof(asked), &err) < 0);
        assert_non_null(strstr(err.text, rows[i].text));
    }
    int rank;
    char *none[] = {(char[]){"PMI_RANK=0"}, (char[]){"PMI_SIZE=2"}, NULL};
    assert_int_equal(pmi_client_size(none, &rank), 0);
    char *odd[] = {(char[]){"PMI_RANK=2"}, (char[]){"PMI_SIZE=2"}, (char[]){"PMI_FD=3"}, NULL};
    assert_int_equal(pmi_client_size(odd, &rank), 0);
}

/* ---- the server ---- */

struct world {
    struct event_base *base;
    struct pmi1 *s;
    int fd[2];
    unsigned barriers;
    int aborted;
    size_t news;
};

static void on_barrier(void *arg, unsigned seq, const void *part, size_t len)
{
    struct world *w = arg;
    (void)part;
    w->barriers = seq;
    w->news = len;
}

static void on_abort(void *arg, int local_rank)
{
    ((struct world *)arg)->aborted = local_rank;
}

static int world_new(void **state)
{
    static const int sizes[] = {2, 2};
    struct world *w = calloc(1, sizeof(*w));
    w->base = event_base_new();
    w->aborted = -1;
    const struct pmi1_cfg cfg = {.base = w->base,
                                 .kvsname = "kvs",
                                 .first_rank = 2,
                                 .local_size = 2,
                                 .world_size = 4,
                                 .sizes = sizes,
                                 .nnodes = 2,
                                 .on_barrier = on_barrier,
                                 .on_abort = on_abort,
                                 .arg = w};
    assert_int_equal(pmi1_new(&w->s, &cfg, NULL), 0);
    for (int i = 0; i < 2; i++)
        w->fd[i] = dup(pmi1_fd(w->s, i));
    pmi1_started(w->s);
    *state = w;
    return 0;
}

static int world_free(void **state)
{
    struct world *w = *state;
    pmi1_free(w->s);
    for (int i = 0; i < 2; i++)
        if (w->fd[i] >= 0)
            close(w->fd[i]);
    event_base_free(w->base);
    free(w);
    return 0;
}

static void say(struct world *w, int i, const char *text)
{
    assert_int_equal(write(w->fd[i], text, strlen(text)), strlen(text));
    event_base_loop(w->base, EVLOOP_NONBLOCK);
}

static const char *hear(struct world *w, int i)
{
    static char in[2048];
    ssize_t n = recv(w->fd[i], in, sizeof(in) - 1, MSG_DONTWAIT);
    if (n < 0)
        return "nothing";
    in[n] = '\0';
    return in;
}

static void a_worker_is_told_where_it_is(void **state)
{
    static const struct {
        const char *question, *answer;
    } rows[] = {
        {"cmd=init pmi_version=1 pmi_subversion=1\n",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
        {"cmd=init pmi_version=2 pmi_subversion=0\n",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n"},
        {"cmd=get_maxes\n", "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=860\n"},
        {"cmd=get_appnum\n", "cmd=appnum rc=0 appnum=0\n"},
        {"cmd=get_my_kvsname\n", "cmd=my_kvsname rc=0 kvsname=kvs\n"},
        {"cmd=get_universe_size\n", "cmd=universe_size rc=0 size=4\n"},
        {"cmd=get kvsname=kvs key=PMI_process_mapping\n",
         "cmd=get_result rc=0 msg=success value=(vector,(0,2,2))\n"},
        {"cmd=get kvsname=other key=PMI_process_mapping\n",
         "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"},
        {"cmd=put kvsname=kvs key=a value=\n", "cmd=put_result rc=-1 msg=bad_key_or_value\n"},
        {"cmd=put kvsname=kvs key=a value=b\n", "cmd=put_result rc=0 msg=success\n"},
        {"cmd=get kvsname=kvs key=a\n", "cmd=get_result rc=0 msg=success value=b\n"},
        {"cmd=lookup_name service=x\n", "cmd=lookup_result rc=-1 msg=not_supported\n"},
        {"mcmd=spawn\nnprocs=1\nexecname=x\nendcmd\n",
         "cmd=spawn_result rc=-1 msg=not_supported\n"},
        {"cmd=finalize\n", "cmd=finalize_ack rc=0\n"},
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        say(w, 0, rows[i].question);
        assert_string_equal(hear(w, 0), rows[i].answer);
    }
    for (const char *p = rows[0].question; *p != '\0'; p++) /* byte by byte */
        say(w, 0, (char[]){*p, '\0'});
    assert_string_equal(hear(w, 0), rows[0].answer);
}

static void the_barrier_opens_when_all_nodes_have_told(void **state)
{
    struct world *w = *state;
    static const unsigned char seed[16];
    struct kvs *other;
    size_t n;
    say(w, 0, "cmd=put kvsname=kvs key=mine value=1\n");
    (void)hear(w, 0);
    say(w, 0, "cmd=barrier_in\n");
    assert_int_equal(w->barriers, 0);
    say(w, 1, "cmd=barrier_in\n");
    assert_int_equal(w->barriers, 1);
    assert_true(w->news > 0);
    assert_string_equal(hear(w, 0), "nothing");
    assert_int_equal(kvs_new(&other, seed), 0);
    assert_int_equal(kvs_put(other, "theirs", "2"), 0);
    const void *part = kvs_news(other, &n);
    assert_int_equal(pmi1_take(w->s, part, n, NULL), 0);
    assert_int_equal(pmi1_take(w->s, part, n - 1, NULL), -EPROTO);
    kvs_free(other);
    pmi1_release(w->s);
    for (int i = 0; i < 2; i++)
        assert_string_equal(hear(w, i), "cmd=barrier_out rc=0\n");
    say(w, 1, "cmd=get kvsname=kvs key=theirs\n");
    assert_string_equal(hear(w, 1), "cmd=get_result rc=0 msg=success value=2\n");
    say(w, 0, "cmd=barrier_in\n");
    say(w, 1, "cmd=barrier_in\n");
    assert_int_equal(w->barriers, 2);
    assert_int_equal(w->news, 0);
}

static void an_end_before_finalize_is_known(void **state)
{
    struct world *w = *state;
    say(w, 0, "cmd=init pmi_version=1 pmi_subversion=1\n");
    assert_true(pmi1_ended(w->s, 0).open);
    assert_false(pmi1_ended(w->s, 1).open);
    /* pmi1_ended() reads the last line, even if the loop has not run since */
    assert_int_equal(write(w->fd[0], "cmd=finalize\n", 13), 13);
    assert_false(pmi1_ended(w->s, 0).open);
    say(w, 1, "cmd=init pmi_version=1 pmi_subversion=1\ncmd=abort exitcode=42\n");
    assert_int_equal(w->aborted, 1);
    struct pmi1_end end = pmi1_ended(w->s, 1);
    assert_true(end.aborted);
    assert_int_equal(end.code, 42);
}

static void nonsense_closes_the_connection(void **state)
{
    struct world *w = *state;
    char line[PMI_READ_MAX + 1];
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    say(w, 0, line);
    assert_string_equal(hear(w, 0), ""); /* end of file */
    say(w, 1, "cmd=barrier_in\ncmd=barrier_in\n");
    assert_string_equal(hear(w, 1), "");
    assert_int_equal(w->barriers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_taken_apart),
        cmocka_unit_test(names_that_are_too_long_are_refused),
        cmocka_unit_test(nodes_of_the_same_size_are_one_block),
        cmocka_unit_test(what_is_put_reaches_the_other_node),
        cmocka_unit_test(the_helpers_messages_come_whole_or_not_at_all),
        cmocka_unit_test(agents_find_each_other_through_an_outer_launcher),
        cmocka_unit_test(an_outer_launcher_that_answers_badly_is_named),
        cmocka_unit_test_setup_teardown(a_worker_is_told_where_it_is, world_new, world_free),
        cmocka_unit_test_setup_teardown(the_barrier_opens_when_all_nodes_have_told, world_new,
                                        world_free),
        cmocka_unit_test_setup_teardown(an_end_before_finalize_is_known, world_new, world_free),
        cmocka_unit_test_setup_teardown(nonsense_closes_the_connection, world_new, world_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
