/* launch: what a starting process makes of what its nodes say. */
#include "launch/launcher_inner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES = 12, LEAD = 1, OUTER = 2, LAST = 3, SECOND = 4, HANG_S = 60, SLOW_TICKS = 30 };

/* The first node, which has told LEAD to start OUTER and LAST. */
struct bed {
    struct root root;
    struct root_cfg cfg;
    struct starter starter;
    struct dd_log log;
    struct package package;
    struct alloc alloc;
    char *addresses[2];
    struct launch_ticket ticket;
};

static void give(struct root *r, int lead, int first, int last)
{
    struct child *c = &r->children[lead];
    c->share = calloc(NODES, sizeof(int));
    assert_non_null(c->share);
    for (int i = first; i <= last; i++) {
        c->share[c->nshare++] = i;
        r->children[i].lead = lead;
        r->children[i].state = CHILD_STARTING;
    }
}

static void bed_new(struct bed *b)
{
    const struct launch_door_cfg door = {.id = "launch.1", .nnodes = NODES};
    struct dd_err err = {0};
    memset(b, 0, sizeof(*b));
    b->log.fd = -1;
    b->starter = (struct starter){.name = "sleep", .command = "%program 600"};
    b->addresses[0] = (char *)(uintptr_t)"127.0.0.1";
    b->ticket.hosts = (struct dd_strv){.v = b->addresses, .n = 1};
    b->package.alloc = &b->alloc;
    assert_int_equal(hostlist_parse(&b->alloc.nodes, "node[0-11]", NULL), 0);
    b->cfg = (struct root_cfg){.starter = &b->starter,
                               .program = "/bin/sleep",
                               .ddrun = "/ddrun",
                               .package = &b->package,
                               .ticket = &b->ticket,
                               .min_nodes = NODES,
                               .log = &b->log};
    struct root *r = &b->root;
    *r = (struct root){.cfg = &b->cfg, .nnodes = NODES, .here = 0, .code = -1, .signal_fd = -1};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r->files), 0);
    r->base = event_base_new();
    assert_non_null(r->base);
    r->room = event_new(r->base, -1, 0, NULL, NULL);
    r->end = event_new(r->base, -1, 0, NULL, NULL);
    r->children = calloc(NODES, sizeof(*r->children));
    assert_true(r->room != NULL && r->end != NULL && r->children != NULL);
    assert_int_equal(launch_door_new(&r->door, r->base, &door, &err), 0);
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        r->out[k].deaf = true;
    for (int i = 0; i < NODES; i++) {
        r->children[i] = (struct child){.root = r,
                                        .index = i,
                                        .lead = i > 0 ? LEAD : -1,
                                        .was = -1,
                                        .stdin_fd = -1,
                                        .state = CHILD_CAME};
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            r->children[i].streams[k].from = -1;
    }
    give(r, LEAD, OUTER, LAST);
}

static void bed_done(struct bed *b)
{
    struct root *r = &b->root;
    for (int i = 0; i < NODES; i++) {
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            stream_done(&r->children[i].streams[k]);
        free(r->children[i].share);
    }
    launch_door_free(r->door);
    event_free(r->room);
    event_free(r->end);
    event_base_free(r->base);
    free(r->children);
    hostlist_free(b->alloc.nodes);
}

static void end_starter(pid_t pid, int sig)
{
    int status;
    (void)alarm(HANG_S); /* only ends a hang */
    if (sig != SIGKILL)  /* else it has been killed */
        assert_int_equal(kill(pid, sig), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    (void)alarm(0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == sig);
}

static const struct launch_word came = {.type = WORD_CAME, .node = OUTER};
static const struct launch_word ended = {.type = WORD_ENDED, .node = OUTER, .value = 7};

/* Its word and ours to drop it have crossed: it is not started twice. */
static void a_node_that_came_while_it_was_taken_over_stays_where_it_is(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    struct child *outer = &b.root.children[OUTER];
    struct child *last = &b.root.children[LAST];
    root_take_shares(&b.root);
    assert_true(outer->pid > 0 && outer->lead == OUTER && outer->state == CHILD_STARTING);
    assert_true(last->pid > 0 && last->lead == LAST && last->state == CHILD_STARTING);
    root_node_says(&b.root, &b.root.children[LEAD],
                   &(struct launch_word){.type = WORD_CAME, .node = LAST});
    assert_true(last->lead == LEAD && last->state == CHILD_CAME && outer->state == CHILD_STARTING);
    root_node_says(&b.root, &b.root.children[LEAD], &came);
    assert_int_equal(outer->state, CHILD_CAME);
    assert_int_equal(outer->lead, LEAD);
    end_starter(outer->pid, SIGKILL);
    end_starter(last->pid, SIGKILL);
    root_node_says(&b.root, &b.root.children[LEAD], &ended);
    assert_int_equal(outer->state, CHILD_ENDED);
    assert_int_equal(b.root.code, 7);
    bed_done(&b);
}

static void a_node_that_was_taken_over_and_came_is_ours(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    struct child *outer = &b.root.children[OUTER];
    root_take_shares(&b.root);
    root_node_came(&b.root, outer);
    root_node_says(&b.root, &b.root.children[LEAD], &came);
    root_node_says(&b.root, &b.root.children[LEAD], &ended);
    assert_true(outer->state == CHILD_CAME && outer->lead == OUTER);
    end_starter(outer->pid, SIGTERM);
    end_starter(b.root.children[LAST].pid, SIGTERM);
    bed_done(&b);
}

/* It has its task, and we do not know yet that it has come: nobody could tell it that it has no
 * task any more. */
static void the_share_of_a_node_that_is_coming_is_not_taken(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    b.root.children[LEAD].state = CHILD_STARTING;
    b.root.children[LEAD].has_task = true;
    root_take_shares(&b.root);
    assert_true(b.root.children[OUTER].pid == 0 && b.root.children[OUTER].lead == LEAD);
    assert_int_equal(b.root.children[LEAD].nshare, 2);
    bed_done(&b);
}

/* Returns how many starters run, and ends them. */
static int end_starters(struct bed *b)
{
    int n = 0;
    for (int i = 0; i < NODES; i++)
        if (b->root.children[i].pid > 0) {
            end_starter(b->root.children[i].pid, SIGTERM);
            b->root.children[i].pid = 0;
            n++;
        }
    return n;
}

/* Those of SECOND, which has not come either, too: all late ones are dealt out once, over two. */
static void late_nodes_are_dealt_out_over_the_fan_out(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    b.cfg.fanout = 2;
    give(&b.root, SECOND, SECOND + 1, NODES - 1);
    b.root.children[SECOND].state = CHILD_STARTING;
    b.root.children[SECOND].lead = SECOND;
    root_take_shares(&b.root);
    int given = 0;
    for (int i = 0; i < NODES; i++)
        given += b.root.children[i].nshare;
    assert_int_equal(end_starters(&b), 2);
    assert_int_equal(
        given,
        9 - 2); /* OUTER, LAST and the seven of SECOND, without the two that start the others */
    assert_true(b.root.children[LEAD].nshare == 0 && b.root.children[SECOND].nshare == 0);
    bed_done(&b);
}

/* A new lead may be no better than the old one: each time there is at least one node more that is
 * started from here. */
static void what_a_new_lead_does_not_start_is_taken_again(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    b.cfg.fanout = 1;
    root_take_shares(&b.root);
    assert_true(b.root.children[OUTER].lead == OUTER && b.root.children[LAST].lead == OUTER);
    root_take_shares(&b.root);
    assert_int_equal(b.root.children[LAST].lead, LAST);
    root_take_shares(&b.root);
    assert_int_equal(end_starters(&b), 2);
    bed_done(&b);
}

/* Its new lead may have its task by then, or not. */
static void a_node_that_came_by_its_old_lead_is_not_started_by_the_new_one(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    b.cfg.fanout = 1;
    root_take_shares(&b.root);
    struct child *last = &b.root.children[LAST];
    struct child *lead = &b.root.children[OUTER];
    assert_true(last->lead == OUTER && lead->nshare == 1);
    root_node_says(&b.root, &b.root.children[LEAD],
                   &(struct launch_word){.type = WORD_CAME, .node = LAST});
    assert_true(last->lead == LEAD && last->state == CHILD_CAME);
    root_trim_share(&b.root, lead);
    assert_int_equal(lead->nshare, 0);
    assert_int_equal(end_starters(&b), 1);
    bed_done(&b);
}

/* A second in which it was stopped, and those after it, are one. */
static void nobody_is_late_before_half_a_minute_of_looking(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    for (int i = 1; i < SLOW_TICKS; i++)
        assert_true(root_tick(&b.root));
    assert_int_equal(b.root.children[OUTER].lead, LEAD);
    assert_true(root_tick(&b.root));
    assert_int_equal(b.root.children[OUTER].lead, OUTER);
    assert_int_equal(end_starters(&b), 2);
    b.root.children[OUTER].state = b.root.children[LAST].state = CHILD_CAME;
    assert_false(root_tick(&b.root));
    bed_done(&b);
}

/* The number in a word may mean a stream, and a job of one node elsewhere has no second node. */
static void words_that_only_go_down_touch_no_node(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(mprotect(at + page, page, PROT_NONE), 0);
    struct child *only = (struct child *)(void *)(at + page - sizeof(*only));
    *only = (struct child){.state = CHILD_CAME};
    struct root r = {.children = only, .nnodes = 1, .here = -1};
    root_node_says(&r, only, &(struct launch_word){.type = WORD_ROOM, .node = 1, .value = 5});
    root_node_says(&r, only, &(struct launch_word){.type = WORD_DROP, .node = 0});
    assert_int_equal(only->state, CHILD_CAME);
    assert_int_equal(munmap(at, 2 * page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_came_while_it_was_taken_over_stays_where_it_is),
        cmocka_unit_test(a_node_that_was_taken_over_and_came_is_ours),
        cmocka_unit_test(the_share_of_a_node_that_is_coming_is_not_taken),
        cmocka_unit_test(late_nodes_are_dealt_out_over_the_fan_out),
        cmocka_unit_test(what_a_new_lead_does_not_start_is_taken_again),
        cmocka_unit_test(a_node_that_came_by_its_old_lead_is_not_started_by_the_new_one),
        cmocka_unit_test(nobody_is_late_before_half_a_minute_of_looking),
        cmocka_unit_test(words_that_only_go_down_touch_no_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
