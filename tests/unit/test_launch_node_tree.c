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

enum { NODES = 12, PARENT = 1, OUTER = 2, LAST = 3, SECOND = 4, HANG_S = 60, SLOW_TICKS = 30 };

/* The first node, which has told PARENT to start OUTER and LAST. */
struct bed {
    struct launcher root;
    struct launcher_cfg cfg;
    struct starter starter;
    struct dd_log log;
    struct bootstrap_payload payload;
    struct alloc alloc;
    char *addresses[2];
    struct launch_ticket ticket;
};

static void give(struct launcher *r, int parent, int first, int last)
{
    struct child *c = &r->children[parent];
    c->subtree = calloc(NODES, sizeof(int));
    assert_non_null(c->subtree);
    for (int i = first; i <= last; i++) {
        c->subtree[c->nsubtree++] = i;
        r->children[i].parent = parent;
        r->children[i].state = CHILD_STARTING;
    }
}

static void bed_new(struct bed *b)
{
    const struct bootstrap_server_cfg cfg = {.id = "launch.1", .nnodes = NODES};
    struct dd_err err = {0};
    memset(b, 0, sizeof(*b));
    b->log.fd = -1;
    b->starter = (struct starter){.name = "sleep", .command = "%program 600"};
    b->addresses[0] = (char *)(uintptr_t)"127.0.0.1";
    b->ticket.hosts = (struct dd_strv){.v = b->addresses, .n = 1};
    b->payload.alloc = &b->alloc;
    assert_int_equal(hostlist_parse(&b->alloc.nodes, "node[0-11]", NULL), 0);
    b->cfg = (struct launcher_cfg){.starter = &b->starter,
                                   .program = "/bin/sleep",
                                   .ddrun = "/ddrun",
                                   .payload = &b->payload,
                                   .ticket = &b->ticket,
                                   .min_nodes = NODES,
                                   .log = &b->log};
    struct launcher *r = &b->root;
    *r = (struct launcher){.cfg = &b->cfg, .nnodes = NODES, .here = 0, .code = -1, .signal_fd = -1};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r->files), 0);
    r->base = event_base_new();
    assert_non_null(r->base);
    r->room = event_new(r->base, -1, 0, NULL, NULL);
    r->end = event_new(r->base, -1, 0, NULL, NULL);
    r->children = calloc(NODES, sizeof(*r->children));
    assert_true(r->room != NULL && r->end != NULL && r->children != NULL);
    assert_int_equal(bootstrap_server_new(&r->server, r->base, &cfg, &err), 0);
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        r->out[k].deaf = true;
    for (int i = 0; i < NODES; i++) {
        r->children[i] = (struct child){.launcher = r,
                                        .index = i,
                                        .parent = i > 0 ? PARENT : -1,
                                        .former_parent = -1,
                                        .stdin_fd = -1,
                                        .state = CHILD_CONNECTED};
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            r->children[i].streams[k].from = -1;
    }
    give(r, PARENT, OUTER, LAST);
}

static void bed_done(struct bed *b)
{
    struct launcher *r = &b->root;
    for (int i = 0; i < NODES; i++) {
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            output_source_done(&r->children[i].streams[k]);
        free(r->children[i].subtree);
    }
    bootstrap_server_free(r->server);
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

static const struct launch_msg came = {.type = LAUNCH_CONNECTED, .node = OUTER};
static const struct launch_msg ended = {.type = LAUNCH_EXITED, .node = OUTER, .value = 7};

/* Its word and ours to drop it have crossed: it is not started twice. */
static void a_node_that_came_while_it_was_taken_over_stays_where_it_is(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    struct child *outer = &b.root.children[OUTER];
    struct child *last = &b.root.children[LAST];
    launcher_take_subtrees(&b.root);
    assert_true(outer->pid > 0 && outer->parent == OUTER && outer->state == CHILD_STARTING);
    assert_true(last->pid > 0 && last->parent == LAST && last->state == CHILD_STARTING);
    launcher_node_says(&b.root, &b.root.children[PARENT],
                       &(struct launch_msg){.type = LAUNCH_CONNECTED, .node = LAST});
    assert_true(last->parent == PARENT && last->state == CHILD_CONNECTED &&
                outer->state == CHILD_STARTING);
    launcher_node_says(&b.root, &b.root.children[PARENT], &came);
    assert_int_equal(outer->state, CHILD_CONNECTED);
    assert_int_equal(outer->parent, PARENT);
    end_starter(outer->pid, SIGKILL);
    end_starter(last->pid, SIGKILL);
    launcher_node_says(&b.root, &b.root.children[PARENT], &ended);
    assert_int_equal(outer->state, CHILD_EXITED);
    assert_int_equal(b.root.code, 7);
    bed_done(&b);
}

static void a_node_that_was_taken_over_and_came_is_ours(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    struct child *outer = &b.root.children[OUTER];
    launcher_take_subtrees(&b.root);
    launcher_node_came(&b.root, outer);
    launcher_node_says(&b.root, &b.root.children[PARENT], &came);
    launcher_node_says(&b.root, &b.root.children[PARENT], &ended);
    assert_true(outer->state == CHILD_CONNECTED && outer->parent == OUTER);
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
    b.root.children[PARENT].state = CHILD_STARTING;
    b.root.children[PARENT].has_task = true;
    launcher_take_subtrees(&b.root);
    assert_true(b.root.children[OUTER].pid == 0 && b.root.children[OUTER].parent == PARENT);
    assert_int_equal(b.root.children[PARENT].nsubtree, 2);
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
    b.root.children[SECOND].parent = SECOND;
    launcher_take_subtrees(&b.root);
    int given = 0;
    for (int i = 0; i < NODES; i++)
        given += b.root.children[i].nsubtree;
    assert_int_equal(end_starters(&b), 2);
    assert_int_equal(
        given,
        9 - 2); /* OUTER, LAST and the seven of SECOND, without the two that start the others */
    assert_true(b.root.children[PARENT].nsubtree == 0 && b.root.children[SECOND].nsubtree == 0);
    bed_done(&b);
}

/* A new parent may be no better than the old one: each time there is at least one node more that is
 * started from here. */
static void what_a_new_lead_does_not_start_is_taken_again(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    b.cfg.fanout = 1;
    launcher_take_subtrees(&b.root);
    assert_true(b.root.children[OUTER].parent == OUTER && b.root.children[LAST].parent == OUTER);
    launcher_take_subtrees(&b.root);
    assert_int_equal(b.root.children[LAST].parent, LAST);
    launcher_take_subtrees(&b.root);
    assert_int_equal(end_starters(&b), 2);
    bed_done(&b);
}

/* Its new parent may have its task by then, or not. */
static void a_node_that_came_by_its_old_lead_is_not_started_by_the_new_one(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b);
    b.cfg.fanout = 1;
    launcher_take_subtrees(&b.root);
    struct child *last = &b.root.children[LAST];
    struct child *parent = &b.root.children[OUTER];
    assert_true(last->parent == OUTER && parent->nsubtree == 1);
    launcher_node_says(&b.root, &b.root.children[PARENT],
                       &(struct launch_msg){.type = LAUNCH_CONNECTED, .node = LAST});
    assert_true(last->parent == PARENT && last->state == CHILD_CONNECTED);
    launcher_trim_subtree(&b.root, parent);
    assert_int_equal(parent->nsubtree, 0);
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
        assert_true(launcher_tick(&b.root));
    assert_int_equal(b.root.children[OUTER].parent, PARENT);
    assert_true(launcher_tick(&b.root));
    assert_int_equal(b.root.children[OUTER].parent, OUTER);
    assert_int_equal(end_starters(&b), 2);
    b.root.children[OUTER].state = b.root.children[LAST].state = CHILD_CONNECTED;
    assert_false(launcher_tick(&b.root));
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
    *only = (struct child){.state = CHILD_CONNECTED};
    struct launcher r = {.children = only, .nnodes = 1, .here = -1};
    launcher_node_says(&r, only,
                       &(struct launch_msg){.type = LAUNCH_CREDIT, .node = 1, .value = 5});
    launcher_node_says(&r, only, &(struct launch_msg){.type = LAUNCH_CANCEL, .node = 0});
    assert_int_equal(only->state, CHILD_CONNECTED);
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
