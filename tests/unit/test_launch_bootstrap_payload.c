/* launch: the payload of a started node, and the command lines that start it. */
#include "launch/bootstrap_payload.h"
#include "launch/starter.h"
#include "launch/parent_link.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static char *const *block(const char *const *words)
{
    return (char *const *)(uintptr_t)words;
}

static struct alloc *some_alloc(void)
{
    struct alloc *a = calloc(1, sizeof(*a));
    assert_non_null(a);
    a->source = "pbs";
    a->job_id = strdup("pbs.7.srv");
    a->run_id = strdup("7.srv");
    a->requeue_id = strdup("pbs.7");
    a->requeued = true;
    a->psk = strdup("cookie");
    a->nnodes = 2;
    a->index = 1;
    a->ports[0] = 4711;
    a->nports = 1;
    a->end_time = UINT64_C(1) << 40;
    assert_int_equal(hostlist_parse(&a->nodes, "n[1-2]", NULL), 0);
    return a;
}

static void a_package_arrives_as_it_was_sent(void **state)
{
    (void)state;
    DD_AUTO(bootstrap_payload) struct bootstrap_payload in = {
        .umask = 027, .limits = {5, UINT64_MAX}, .limits_n = 2, .directory = strdup("/a b")};
    DD_AUTO(bootstrap_payload) struct bootstrap_payload out = {0};
    DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(BOOTSTRAP_MAX);
    in.alloc = some_alloc();
    for (size_t i = 0; i < hostlist_count(in.alloc->nodes); i++)
        assert_int_equal(dd_strv_push(&in.alloc->gpus, i == 0 ? "" : "0,12"), 0);
    assert_int_equal(dd_strv_push(&in.argv, "ddrun"), 0);
    assert_int_equal(dd_strv_push(&in.argv, ""), 0);
    assert_int_equal(dd_strv_push(&in.env, "A=1\n\xff"), 0);
    assert_int_equal(bootstrap_payload_encode(&bytes, &in), 0);
    assert_int_equal(bootstrap_payload_decode(&out, bytes.data, bytes.len, NULL), 0);
    assert_int_equal(out.umask, 027);
    assert_int_equal(out.limits_n, 2);
    assert_true(out.limits[0] == 5 && out.limits[1] == UINT64_MAX);
    assert_string_equal(out.directory, "/a b");
    assert_int_equal(out.argv.n, 2);
    assert_string_equal(out.argv.v[1], "");
    assert_string_equal(out.env.v[0], "A=1\n\xff");
    assert_string_equal(out.alloc->source, "pbs");
    assert_string_equal(out.alloc->job_id, "pbs.7.srv");
    assert_string_equal(out.alloc->requeue_id, "pbs.7");
    assert_true(out.alloc->requeued);
    assert_string_equal(out.alloc->psk, "cookie");
    assert_string_equal(hostlist_nth(out.alloc->nodes, 1), "n2");
    assert_null(out.alloc->host_addr);
    assert_int_equal(out.alloc->ports[0], 4711);
    assert_true(out.alloc->end_time == UINT64_C(1) << 40);
    assert_int_equal(out.alloc->gpus.n, out.alloc->nnodes);
    assert_string_equal(out.alloc->gpus.v[0], "");
    assert_string_equal(out.alloc->gpus.v[1], "0,12");
}

static void gpus_are_numbers_for_all_nodes_or_for_none(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        DD_AUTO(bootstrap_payload) struct bootstrap_payload in = {.directory = strdup("/")};
        DD_AUTO(bootstrap_payload) struct bootstrap_payload out = {0};
        DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(BOOTSTRAP_MAX);
        in.alloc = some_alloc();
        for (int i = 0; i < in.alloc->nnodes - (wrong == 0); i++)
            assert_int_equal(dd_strv_push(&in.alloc->gpus, wrong == 1 && i == 0 ? "0\nX=1" : "0"),
                             0);
        assert_int_equal(dd_strv_push(&in.argv, "ddrun"), 0);
        assert_int_equal(bootstrap_payload_encode(&bytes, &in), 0);
        assert_int_equal(bootstrap_payload_decode(&out, bytes.data, bytes.len, NULL), -EPROTO);
    }
}

static void a_package_that_is_cut_or_longer_is_refused(void **state)
{
    (void)state;
    DD_AUTO(bootstrap_payload) struct bootstrap_payload in = {.directory = strdup("/")};
    DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(BOOTSTRAP_MAX);
    in.alloc = some_alloc();
    assert_int_equal(dd_strv_push(&in.argv, "ddrun"), 0);
    assert_int_equal(bootstrap_payload_encode(&bytes, &in), 0);
    for (size_t n = 0; n < bytes.len; n++) {
        DD_AUTO(bootstrap_payload) struct bootstrap_payload out = {0};
        assert_int_equal(bootstrap_payload_decode(&out, bytes.data, n, NULL), -EPROTO);
    }
    DD_AUTO(bootstrap_payload) struct bootstrap_payload out = {0};
    assert_int_equal(dd_buf_puts(&bytes, "x"), 0);
    assert_int_equal(bootstrap_payload_decode(&out, bytes.data, bytes.len, NULL), -EPROTO);
}

static void a_node_keeps_what_is_its_own(void **state)
{
    (void)state;
    static const char *const shells[] = {"PATH=/env/bin:/bin",
                                         "PBS_NODENUM=0",
                                         "HOSTNAME=n1",
                                         "TMPDIR=/tmp/7",
                                         "SSH_TTY=/dev/pts/1",
                                         "CUDA_VISIBLE_DEVICES=GPU-1234",
                                         "ROCR_VISIBLE_DEVICES=0,1",
                                         "PBS_JOBID=7",
                                         "EMPTY=",
                                         NULL};
    static const char *const own[] = {"PATH=/bin",          "PBS_NODENUM=1", "TMPDIR=/var/tmp/7",
                                      "SSH_CONNECTION=a b", "LANG=C",        NULL};
    static const char *const wanted[] = {"PATH=/env/bin:/bin", "ROCR_VISIBLE_DEVICES=0,1",
                                         "PBS_JOBID=7",        "EMPTY=",
                                         "PBS_NODENUM=1",      "TMPDIR=/var/tmp/7"};
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(bootstrap_payload_env(&env, block(shells), block(own)), 0);
    assert_int_equal(env.n, sizeof(wanted) / sizeof(wanted[0]));
    for (size_t i = 0; i < env.n; i++)
        assert_string_equal(env.v[i], wanted[i]);
}

static void each_starter_has_its_words(void **state)
{
    (void)state;
    static const char *const command[] = {"/opt/d d/ddrun", "--launched=1/2/x/n1", NULL};
    static const struct {
        const char *name, *words, *line;
    } rows[] = {
        {"srun", NULL,
         "P -X -Q --nodes=3 --ntasks=3 --ntasks-per-node=1 --cpu-bind=none --export=ALL --mpi=none --no-kill "
         "--kill-on-bad-exit=0 --wait=0 /opt/d d/ddrun --launched=1/2/x/n1"},
        {"pbs_tmrsh", NULL, "P n2 /opt/d d/ddrun --launched=1/2/x/n1"},
        {"pbsdsh", NULL, "P -h n2 -- /opt/d d/ddrun --launched=1/2/x/n1"},
        {"tm", NULL, "P n2 /opt/d d/ddrun --launched=1/2/x/n1"},
        {"pals", NULL,
         "P -n 3 --ppn 1 --cpu-bind none --envall /opt/d d/ddrun --launched=1/2/x/n1"},
        {"jsrun", NULL,
         "P -n 3 -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS -b rs /opt/d d/ddrun --launched=1/2/x/n1"},
        {"aprun", NULL, "P -n 3 -N 1 -cc none /opt/d d/ddrun --launched=1/2/x/n1"},
        {"blaunch", NULL, "P n2 /opt/d d/ddrun --launched=1/2/x/n1"},
        {"qrsh", NULL, "P -inherit -nostdin -V n2 '/opt/d d/ddrun' --launched=1/2/x/n1"},
        {"flux", NULL,
         "P run -N3 -n3 -o cpu-affinity=off -o gpu-affinity=off /opt/d d/ddrun --launched=1/2/x/n1"},
        {"oarsh", NULL, "P n2 exec '/opt/d d/ddrun' --launched=1/2/x/n1"},
        {"ssh", NULL,
         "P -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 -T n2 exec '/opt/d d/ddrun' "
         "--launched=1/2/x/n1"},
        {"ssh", "my-ssh -p 22", "my-ssh -p 22 n2 exec '/opt/d d/ddrun' --launched=1/2/x/n1"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct starter *st = starter_find(NULL, rows[i].name, "");
        const struct start s = {.program = "P",
                                .words = rows[i].words,
                                .host = "n2",
                                .nnodes = 3,
                                .command = command,
                                .env = block(command + 2)};
        DD_AUTO(strv) struct dd_strv argv = {0};
        DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(4096);
        assert_non_null(st);
        assert_int_equal(starter_command(&argv, st, &s), 0);
        for (size_t k = 0; k < argv.n; k++)
            assert_int_equal(dd_buf_printf(&line, "%s%s", k > 0 ? " " : "", argv.v[k]), 0);
        assert_string_equal(dd_buf_str(&line), rows[i].line);
    }
}

static void a_step_gets_all_gpus_of_a_job_that_counts_them_by_task(void **state)
{
    (void)state;
    static const char *const command[] = {"ddrun", NULL};
    static const struct {
        const char *env[3];
        const char *option;
    } rows[] = {
        {{"SLURM_GPUS_PER_TASK=1", "SLURM_NTASKS=16"}, "--gpus=16"},
        {{"SLURM_GPUS_PER_TASK=a100:2", "SLURM_NTASKS=6"}, "--gpus=a100:12"},
        {{"SLURM_NTASKS=6"}, "--wait=0"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct start s = {
            .program = "srun", .nnodes = 2, .command = command, .env = block(rows[i].env)};
        DD_AUTO(strv) struct dd_strv argv = {0};
        assert_int_equal(starter_command(&argv, starter_find(NULL, "srun", ""), &s), 0);
        assert_string_equal(argv.v[argv.n - 2], rows[i].option);
    }
}

static void the_allocation_chooses_the_starter(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"slurm-batch", "srun"}, {"pbs", "pbs_tmrsh"}, {"lsf", "jsrun"},      {"sge", "qrsh"},
        {"oar", "oarsh"},        {"cobalt", "ssh"},    {"cobalt-xc", "aprun"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(starter_find(NULL, "auto", rows[i][0])->name, rows[i][1]);
    assert_string_equal(starter_find(starter_find(NULL, "jsrun", ""), "auto", "lsf")->name,
                        "blaunch"); /* if jsrun is not found */
    assert_string_equal(starter_find(starter_find(NULL, "pbsdsh", ""), "auto", "pbs")->name, "tm");
    assert_null(starter_find(starter_find(NULL, "aprun", ""), "auto", "cobalt-xc"));
    assert_null(starter_find(NULL, "auto", "slurm-step"));
    assert_null(starter_find(NULL, "auto", ""));
    assert_null(starter_find(NULL, "none", "pbs"));
}

static void quoting_is_what_a_shell_reads(void **state)
{
    (void)state;
    static const char *const argv[] = {"a", "", "it's", "$HOME *", "x=1,2/y", "n\nl", NULL};
    DD_AUTO(free) char *line = starter_quote(argv);
    assert_string_equal(line, "a '' 'it'\\''s' '$HOME *' x=1,2/y 'n\nl'");
}

static void tickets_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "1",
                                      "1/2/x",
                                      "x/2/id/host",
                                      "1/0/id/host",
                                      "1/70000/id/host",
                                      "-1/2/id/h",
                                      "1/2/id/kex/h",
                                      "1/2/id/key/h/i",
                                      "1/2//h",
                                      "1/2/id/file/h",
                                      "1/2/id/munge/h",
                                      "1/2/id/cookie/h/p",
                                      "1/2/0123456789012345678901234567890123/h"};
    struct launch_ticket t;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_true(launch_ticket_parse(&t, bad[i], NULL) < 0);
    assert_int_equal(launch_ticket_parse(&t, "3/4711/launch.0a/key/n1,10.0.0.1,fd00::1", NULL), 0);
    assert_int_equal(t.index, 3);
    assert_int_equal(t.port, 4711);
    assert_int_equal(t.key, LAUNCH_KEY_STDIN);
    assert_null(t.path);
    assert_string_equal(t.id, "launch.0a");
    assert_int_equal(t.hosts.n, 3);
    assert_string_equal(t.hosts.v[2], "fd00::1");
    launch_ticket_done(&t);
}

static void tickets_come_back_as_they_were_written(void **state)
{
    (void)state;
    static const struct {
        enum launch_key key;
        const char *path, *text;
    } rows[] = {
        {LAUNCH_KEY_OFFERED, NULL, "--launched=7/4711/launch.0a/n1,10.0.0.1"},
        {LAUNCH_KEY_STDIN, NULL, "--launched=7/4711/launch.0a/key/n1,10.0.0.1"},
        {LAUNCH_KEY_COOKIE, NULL, "--launched=7/4711/launch.0a/cookie/n1,10.0.0.1"},
        {LAUNCH_KEY_FILE, "/gpfs/a b/k,1",
         "--launched=7/4711/launch.0a/file/n1,10.0.0.1/gpfs/a b/k,1"},
        {LAUNCH_KEY_MUNGE, "/run/m", "--launched=7/4711/launch.0a/munge/n1,10.0.0.1/run/m"},
    };
    char *hosts[] = {(char *)(uintptr_t)"n1", (char *)(uintptr_t)"10.0.0.1", NULL};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct launch_ticket back;
        const struct launch_ticket t = {.index = 7,
                                        .port = 4711,
                                        .id = "launch.0a",
                                        .key = rows[i].key,
                                        .path = (char *)(uintptr_t)rows[i].path,
                                        .hosts = {.v = hosts, .n = 2}};
        DD_AUTO(free) char *text = launch_ticket_argument(&t);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(launch_ticket_parse(&back, strchr(text, '=') + 1, NULL), 0);
        assert_int_equal(back.key, rows[i].key);
        assert_int_equal(back.hosts.n, 2);
        assert_string_equal(back.path != NULL ? back.path : "",
                            rows[i].path != NULL ? rows[i].path : "");
        launch_ticket_done(&back);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_package_arrives_as_it_was_sent),
        cmocka_unit_test(a_package_that_is_cut_or_longer_is_refused),
        cmocka_unit_test(a_node_keeps_what_is_its_own),
        cmocka_unit_test(each_starter_has_its_words),
        cmocka_unit_test(a_step_gets_all_gpus_of_a_job_that_counts_them_by_task),
        cmocka_unit_test(gpus_are_numbers_for_all_nodes_or_for_none),
        cmocka_unit_test(the_allocation_chooses_the_starter),
        cmocka_unit_test(quoting_is_what_a_shell_reads),
        cmocka_unit_test(tickets_are_checked),
        cmocka_unit_test(tickets_come_back_as_they_were_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
