/* The hooks of round features: their order, the number of calls, and the state after a failure. */
#include "agent/features.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char calls[1000];
static const char *failing; /* the call that fails, "feature.hook" */
static int living;          /* allocated states */

static int note(const char *feature, const char *hook)
{
    char call[40];
    (void)snprintf(call, sizeof(call), "%s.%s", feature, hook);
    (void)snprintf(calls + strlen(calls), sizeof(calls) - strlen(calls), "%s%s",
                   calls[0] != '\0' ? " " : "", call);
    return failing != NULL && strcmp(failing, call) == 0 ? -EIO : 0;
}

static int make(void **state)
{
    *state = malloc(1);
    living++;
    return *state != NULL ? 0 : -ENOMEM;
}

static void drop(void *state)
{
    free(state);
    living--;
}

/* The state of "kept" lasts as long as the agent, that of "first" and "last" for a round; "idle"
 * has no state. */
#define FAKE(name)                                                                                 \
    static int name##_prepare(void **state, const struct round *r, struct dd_err *err)             \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)err;                                                                                 \
        int rc = *state == NULL ? make(state) : 0;                                                 \
        return note(#name, "prepare") < 0 ? -EIO : rc;                                             \
    }                                                                                              \
    static int name##_env(void *state, const struct round *r, int local_rank,                      \
                          struct worker_spec *spec)                                                \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)local_rank;                                                                          \
        (void)spec;                                                                                \
        assert_non_null(state);                                                                    \
        return note(#name, "env");                                                                 \
    }                                                                                              \
    static int name##_started(void *state, const struct round *r, struct dd_err *err)              \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)err;                                                                                 \
        assert_non_null(state);                                                                    \
        return note(#name, "started");                                                             \
    }                                                                                              \
    static void name##_message(void *state, const struct round *r, const struct round_message *m)  \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)m;                                                                                   \
        assert_non_null(state);                                                                    \
        (void)note(#name, "message");                                                              \
    }                                                                                              \
    static void name##_stopping(void *state, const struct round *r)                                \
    {                                                                                              \
        (void)r;                                                                                   \
        assert_non_null(state);                                                                    \
        (void)note(#name, "stopping");                                                             \
    }

FAKE(first)
FAKE(kept)
FAKE(last)

static void first_end(void *state, const struct round *r)
{
    (void)r;
    (void)note("first", "end");
    drop(state);
}

static void last_end(void *state, const struct round *r)
{
    (void)r;
    (void)note("last", "end");
    drop(state);
}

static int kept_create(void **state, const struct round *r, struct dd_err *err)
{
    (void)r;
    (void)err;
    (void)note("kept", "create");
    return make(state);
}

static void kept_end(void *state, const struct round *r)
{
    (void)state;
    (void)r;
    (void)note("kept", "end");
}

static void kept_destroy(void *state)
{
    (void)note("kept", "destroy");
    drop(state);
}

static int idle_prepare(void **state, const struct round *r, struct dd_err *err)
{
    (void)state;
    (void)r;
    (void)err;
    return note("idle", "prepare");
}

static void idle_end(void *state, const struct round *r)
{
    (void)state;
    (void)r;
    (void)note("idle", "end");
}

#define HOOKS(name)                                                                                \
    .prepare = name##_prepare, .worker_env = name##_env, .started = name##_started,                \
    .message = name##_message, .stopping = name##_stopping, .end = name##_end

static const struct round_feature first = {.name = "first", HOOKS(first)};
static const struct round_feature idle = {
    .name = "idle", .prepare = idle_prepare, .started = first_started, .end = idle_end};
static const struct round_feature kept = {
    .name = "kept", .create = kept_create, .destroy = kept_destroy, HOOKS(kept)};
static const struct round_feature last = {.name = "last", HOOKS(last)};
static const struct round_feature *const table[] = {&first, &idle, &kept, &last, NULL};

struct bed {
    struct round r;
};

static int set_up(void **state)
{
    struct bed *b = calloc(1, sizeof(*b));
    if (b == NULL)
        return -1;
    *state = b;
    calls[0] = '\0';
    failing = NULL;
    return features_new(&b->r.features, table, &b->r, NULL);
}

static int tear_down(void **state)
{
    struct bed *b = *state;
    features_end(b->r.features, &b->r);
    features_free(b->r.features);
    free(b);
    assert_int_equal(living, 0);
    return 0;
}

static void expect(const char *want)
{
    assert_string_equal(calls, want);
    calls[0] = '\0';
}

static void hooks_run_in_the_order_of_the_table_and_end_in_reverse(void **state)
{
    struct round *r = &((struct bed *)*state)->r;
    struct worker_spec spec = {0};
    expect("kept.create");
    assert_int_equal(features_prepare(r->features, r, NULL), 0);
    expect("first.prepare idle.prepare kept.prepare last.prepare");
    assert_int_equal(features_worker_env(r->features, r, 0, &spec), 0);
    expect("first.env kept.env last.env");
    assert_int_equal(features_started(r->features, r, NULL), 0);
    expect("first.started kept.started last.started");
    features_stopping(r->features, r);
    expect("first.stopping kept.stopping last.stopping");
    features_end(r->features, r);
    expect("last.end kept.end first.end");
}

static void each_round_ends_once(void **state)
{
    struct round *r = &((struct bed *)*state)->r;
    calls[0] = '\0';
    for (int round = 0; round < 3; round++) {
        assert_int_equal(features_prepare(r->features, r, NULL), 0);
        features_end(r->features, r);
        features_end(r->features, r);
        expect("first.prepare idle.prepare kept.prepare last.prepare last.end kept.end first.end");
    }
}

static void a_failed_prepare_ends_what_was_prepared_and_no_more(void **state)
{
    struct round *r = &((struct bed *)*state)->r;
    calls[0] = '\0';
    failing = "kept.prepare";
    assert_int_equal(features_prepare(r->features, r, NULL), -EIO);
    features_end(r->features, r);
    expect("first.prepare idle.prepare kept.prepare kept.end first.end");
    failing = NULL;
    assert_int_equal(features_prepare(r->features, r, NULL), 0);
    expect("first.prepare idle.prepare kept.prepare last.prepare");
}

static void the_first_failure_of_started_is_the_last_call(void **state)
{
    struct round *r = &((struct bed *)*state)->r;
    assert_int_equal(features_prepare(r->features, r, NULL), 0);
    calls[0] = '\0';
    failing = "kept.started";
    assert_int_equal(features_started(r->features, r, NULL), -EIO);
    expect("first.started kept.started");
    failing = "first.env";
    assert_int_equal(features_worker_env(r->features, r, 0, &(struct worker_spec){0}), -EIO);
    expect("first.env");
}

static void no_hook_runs_between_rounds(void **state)
{
    struct round *r = &((struct bed *)*state)->r;
    const struct round_message m = {.type = ROUND_PRESIGNAL, .sig = 10};
    calls[0] = '\0';
    features_message(r->features, r, &m);
    features_stopping(r->features, r);
    features_end(r->features, r);
    expect("");
    assert_int_equal(features_prepare(r->features, r, NULL), 0);
    calls[0] = '\0';
    features_message(r->features, r, &m);
    expect("first.message kept.message last.message");
}

static void a_state_belongs_to_one_feature_and_one_round(void **state)
{
    struct round *r = &((struct bed *)*state)->r;
    static const struct round_feature stranger = {.name = "stranger"};
    const void *mine = features_state(r, &kept);
    assert_non_null(mine);
    assert_null(features_state(r, &first));
    assert_int_equal(features_prepare(r->features, r, NULL), 0);
    assert_ptr_equal(features_state(r, &kept), mine);
    assert_non_null(features_state(r, &first));
    assert_null(features_state(r, &idle));
    assert_null(features_state(r, &stranger));
    features_end(r->features, r);
    assert_null(features_state(r, &first));
    assert_ptr_equal(features_state(r, &kept), mine);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hooks_run_in_the_order_of_the_table_and_end_in_reverse),
        TEST(each_round_ends_once),
        TEST(a_failed_prepare_ends_what_was_prepared_and_no_more),
        TEST(the_first_failure_of_started_is_the_last_call),
        TEST(no_hook_runs_between_rounds),
        TEST(a_state_belongs_to_one_feature_and_one_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
