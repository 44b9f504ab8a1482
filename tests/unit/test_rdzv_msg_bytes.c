/* rdzv: the bytes of every control message, which must not change: nodes of one job may run
 * different versions of ddrun. ' stands for ". */
#include "base/auto.h"
#include "config.h"
#include "rdzv/msg.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define HEAD(type) "{'type':'" type "','v':1,'ddrun':'" PACKAGE_VERSION "'"

static const struct dd_strv three = {
    .v = (char *[]){(char[]){"10.0.0.1"}, (char[]){""}, (char[]){"fd00::1"}, NULL}, .n = 3};
static const struct dd_strv one = {.v = (char *[]){(char[]){"10.0.0.1"}, NULL}, .n = 1};

static const struct {
    const struct msg *m;
    const char *bytes;
} rows[] = {
    {MSG(JOIN, .index = -1, .nnodes = 4, .min_nodes = 2, .epoch = INT64_MAX, .elsewhere = 1,
         .ended_well = 1, .slots = 8, .pid = 4711,
         .name = "n\xc3\xb6"
                 "de1",
         .addr = "fd00::1", .addrs = &three, .members = "0 3 1 0 n[0-2,7]",
         .committed = "0 2 1 0 n[0-2,7]", .spent = "10 2000", .charges = "1 1 1 0 5 0 n1\twhy\n",
         .sent_ns = 123456789012345, .unfit = "GPU 3 is lost", .check = "gpu",
         .ports = "[10.0.0.1]/4000,4001", .text = "no program"),
     HEAD("join") ",'index':-1,'nnodes':4,'min_nodes':2,'epoch':9223372036854775807,"
                  "'elsewhere':1,'ended_well':1,'slots':8,'pid':4711,'name':'nöde1',"
                  "'addr':'fd00::1','addrs':['10.0.0.1','','fd00::1'],"
                  "'members':'0 3 1 0 n[0-2,7]','committed':'0 2 1 0 n[0-2,7]','spent':'10 2000',"
                  "'charges':'1 1 1 0 5 0 n1\\twhy\\n',"
                  "'sent_ns':123456789012345,'unfit':'GPU 3 is lost','check':'gpu',"
                  "'ports':'[10.0.0.1]/4000,4001','text':'no program'}"},
    {MSG(JOIN, .nnodes = 1, .slots = 1),
     HEAD(
         "join") ",'index':0,'nnodes':1,'min_nodes':0,'epoch':0,'elsewhere':0,'ended_well':0,"
                 "'slots':1,'pid':0,'name':'','addr':'','addrs':[],'members':'','committed':'',"
                 "'spent':'','charges':'','sent_ns':0,'unfit':'','check':'','ports':'','text':''}"},
    {MSG(STATUS, .text = "waits for node3\n\t\x01"),
     HEAD("status") ",'text':'waits for node3\\n\\t\\u0001'}"},
    {MSG(REFUSE, .epoch = 3, .text = "k\xff\\/"), HEAD("refuse") ",'epoch':3,'text':'k?\\\\/'}"},
    {MSG(WELCOME, .epoch = 2), HEAD("welcome") ",'epoch':2}"},
    {MSG(PLAN, .round = 5, .node_rank = 1, .restart_count = 2, .max_restarts = 3,
         .addr = "10.0.0.1", .addrs = &three, .master_port = 29500, .sizes = "4(x2),1",
         .nodes = "node[1-3]", .members = "0 5 2 0 n[0-2]", .spent = "1",
         .ports = "/4000;[fd00::1]/4000", .token = "0123456789abcdef0123456789abcdef"),
     HEAD("plan") ",'round':5,'addr':'10.0.0.1','addrs':['10.0.0.1','','fd00::1'],'node_rank':1,"
                  "'restart_count':2,'max_restarts':3,'master_port':29500,'sizes':'4(x2),1',"
                  "'nodes':'node[1-3]','members':'0 5 2 0 n[0-2]','spent':'1','charges':'',"
                  "'ports':'/4000;[fd00::1]/4000','token':'0123456789abcdef0123456789abcdef'}"},
    {&(struct msg){.type = MSG_ROUND_STARTED}, HEAD("begun") "}"},
    {&(struct msg){.type = MSG_RECORD_PHASES}, HEAD("record-phases") "}"},
    {MSG(PHASES, .round = -1, .sent_ns = 123456789012345, .phases = &one),
     HEAD("phases") ",'round':-1,'sent_ns':123456789012345,'phases':['10.0.0.1']}"},
    {MSG(WARNINGS, .text = "GPU 3 is slow\nGPU 4 is slow\n"),
     HEAD("warnings") ",'text':'GPU 3 is slow\\nGPU 4 is slow\\n'}"},
    {MSG(NODE_MARKS, .text = "n1\tbeing drained\n"),
     HEAD("node-marks") ",'text':'n1\\tbeing drained\\n'}"},
    {MSG(STARTED, .round = INT32_MAX), HEAD("started") ",'round':2147483647}"},
    {MSG(PROGRESS, .round = 5, .step = INT64_MAX),
     HEAD("progress") ",'round':5,'step':9223372036854775807}"},
    {MSG(STEPS, .round = 5, .text = "0 7 8 8 50000 1200 20000;"),
     HEAD("steps") ",'round':5,'text':'0 7 8 8 50000 1200 20000;'}"},
    {MSG(LOAD, .round = 5, .text = "0 62 1755 1980 3 0;"),
     HEAD("load") ",'round':5,'text':'0 62 1755 1980 3 0;'}"},
    {MSG(COMMIT, .round = 5), HEAD("commit") ",'round':5}"},
    {MSG(ROUND_MEMBERS, .addr = "10.0.0.1", .addrs = &one, .members = "0 5 2 0 n[0-2]"),
     HEAD("round") ",'addr':'10.0.0.1','addrs':['10.0.0.1'],'members':'0 5 2 0 n[0-2]'}"},
    {MSG(PROBE_REQUEST, .addr = ""), HEAD("look") ",'addr':''}"},
    {MSG(PROBE_RESULT, .addr = "10.0.0.2"), HEAD("looked") ",'addr':'10.0.0.2'}"},
    {MSG(EXIT, .round = 5, .rank = 9, .local_rank = 1, .pid = 4712, .code = 255, .signal = 9,
         .oom = 1, .ended_ns = 123456789012344, .sent_ns = 123456789012345,
         .error = "RuntimeError: 1", .trace = "Traceback", .log = "/tmp/1.err",
         .text = "last line"),
     HEAD("exit") ",'round':5,'pid':4712,'local_rank':1,'code':255,'signal':9,"
                  "'sent_ns':123456789012345,'ended_ns':123456789012344,'rank':9,'oom':1,"
                  "'error':'RuntimeError: 1','trace':'Traceback','log':'/tmp/1.err',"
                  "'text':'last line'}"},
    {MSG(SUCCESS_CRITERIA_MET, .round = 5), HEAD("enough") ",'round':5}"},
    {MSG(LEFT, .round = 5, .ranks = "0-3,8"), HEAD("left") ",'round':5,'ranks':'0-3,8'}"},
    {MSG(DONE, .round = 5, .sent_ns = 1, .left = 1, .stopped = 2, .killed = 3, .first_rank = 4,
         .first_ns = 6, .unfit = "hot", .ports = "/4000"),
     HEAD("done") ",'round':5,'sent_ns':1,'left':1,'stopped':2,'killed':3,'first_rank':4,"
                  "'first_ns':6,'unfit':'hot','ports':'/4000'}"},
    {MSG(STOP_REQUEST, .signal = 15, .code = 7, .text = "stopped by SIGTERM"),
     HEAD("stop-request") ",'code':7,'signal':15,'text':'stopped by SIGTERM'}"},
    {MSG(STOP, .round = 5, .signal = 15, .first_lost = 1, .text = "why"),
     HEAD("stop") ",'round':5,'signal':15,'first_lost':1,'text':'why'}"},
    {MSG(FINISH, .code = 3, .lost = 1, .asked = 1, .report = 1, .text = "rank 1 failed",
         .detail = "{}"),
     HEAD(
         "finish") ",'code':3,'lost':1,'asked':1,'report':1,'detail':'{}','text':'rank 1 failed'}"},
    {MSG(SIGNAL_REQUEST, .signal = 10, .heard = 1, .end_near = 1),
     HEAD("signal-request") ",'signal':10,'heard':1,'end_near':1}"},
    {MSG(SIGNAL, .signal = 12, .end_near = 1, .id = 9),
     HEAD("signal") ",'signal':12,'end_near':1,'id':9}"},
    {MSG(SIGNALLED, .id = 9, .reached = 4), HEAD("signalled") ",'id':9,'reached':4}"},
    {MSG(IDLE, .round = 5, .idle = 1, .stopped = 1),
     HEAD("idle") ",'round':5,'idle':1,'stopped':1}"},
    {MSG(HUNG, .round = 5), HEAD("hung") ",'round':5}"},
    {MSG(STACKS_WANTED, .round = 5), HEAD("stacks-wanted") ",'round':5}"},
    {MSG(STACKS_REQUEST, .id = 7, .round = 5, .limit_ms = 1487, .all = 1, .keep = 1, .native = 1,
         .ranks = "0-3,8"),
     HEAD(
         "stacks-request") ",'id':7,'round':5,'limit_ms':1487,'all':1,'keep':1,'native':1,'ranks':'0-3,8'}"},
    {MSG(STACKS, .id = 7, .text = "{}"), HEAD("stacks") ",'id':7,'text':'{}'}"},
    {MSG(STACKS_TAKEN, .round = 5), HEAD("stacks-taken") ",'round':5}"},
    {MSG(USAGE_REQUEST, .id = 8, .round = 5, .all_lines = 1, .ranks = "3"),
     HEAD("usage-request") ",'id':8,'round':5,'all_lines':1,'ranks':'3'}"},
    {MSG(USAGE, .id = 8, .text = "{}"), HEAD("usage") ",'id':8,'text':'{}'}"},
    {MSG(WHOIS, .id = 77, .local = "10.0.0.1:4000", .remote = "[fd00::1]:29500"),
     HEAD("whois") ",'id':77,'local':'10.0.0.1:4000','remote':'[fd00::1]:29500'}"},
    {MSG(WHOIS_REPLY, .id = 77, .ok = 1), HEAD("whois-reply") ",'id':77,'ok':1}"},
    {MSG(IDENTITY, .name = "node1", .text = "slurm.4242.0"),
     HEAD("here") ",'name':'node1','text':'slurm.4242.0'}"},
    {MSG(CTL_REQUEST, .id = 1, .what = "drain", .text = "node3"),
     HEAD("ask") ",'id':1,'what':'drain','text':'node3'}"},
    {MSG(CTL_REPLY, .id = 1, .ok = 1, .ends = 1, .detail = "{}"),
     HEAD("answer") ",'id':1,'ok':1,'ends':1,'detail':'{}'}"},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Return the row's bytes with double quotes. free(). */
static char *bytes_of(size_t i)
{
    char *s = strdup(rows[i].bytes);
    assert_non_null(s);
    for (char *p = s; (p = strchr(p, '\'')) != NULL; p++)
        *p = '"';
    return s;
}

static void msg_has_the_same_bytes_in_all_versions(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        DD_AUTO(free) char *text = NULL;
        DD_AUTO(free) char *bytes = bytes_of(i);
        assert_int_equal(msg_encode(&text, rows[i].m), 0);
        assert_string_equal(text, bytes);
    }
}

static void msg_that_was_read_is_written_with_the_same_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        DD_AUTO(msg) struct msg m = {0};
        DD_AUTO(free) char *text = NULL;
        DD_AUTO(free) char *bytes = bytes_of(i);
        assert_int_equal(msg_decode(&m, bytes, strlen(bytes), NULL), 0);
        assert_int_equal(m.type, rows[i].m->type);
        assert_int_equal(msg_encode(&text, &m), 0);
        assert_string_equal(text, bytes);
    }
}

static void every_type_of_message_has_its_bytes_here(void **state)
{
    (void)state;
    int seen[MSG_TYPE_MAX] = {0};
    for (size_t i = 0; i < ROWS; i++)
        seen[rows[i].m->type]++;
    for (int t = 0; t < MSG_TYPE_MAX; t++)
        if (seen[t] == 0)
            fail_msg("no bytes of '%s'", msg_type_name((enum msg_type)t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(msg_has_the_same_bytes_in_all_versions),
        cmocka_unit_test(msg_that_was_read_is_written_with_the_same_bytes),
        cmocka_unit_test(every_type_of_message_has_its_bytes_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
