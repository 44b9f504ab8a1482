/* report: PyTorch's flight recorder. tests/data/flight has the dumps of three ranks, recorded with
 * torch 2.11 and NCCL 2.28: ranks 0 and 1 wait in an all-reduce that rank 2 does not enter. */
#include "report/flight_record.h"
#include "report/pickle.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static size_t dump_of(int rank, char *out, size_t max)
{
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/tests/data/flight/rank_%d",
                   getenv("srcdir") != NULL ? getenv("srcdir") : ".", rank);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(out, 1, max, f);
    assert_int_equal(fclose(f), 0);
    return n;
}

static struct flight_record read_rank(int rank)
{
    static char dump[1 << 16];
    struct flight_record r;
    assert_int_equal(flight_record_read(&r, dump, dump_of(rank, dump, sizeof(dump))), 0);
    return r;
}

static void a_recorded_rank_is_described(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    struct flight_record r = read_rank(0);
    assert_int_equal(flight_record_describe(&out, &r), 0);
    assert_string_equal(dd_buf_str(&out), "in all_reduce, collective 2 of default_pg, "
                                          "256 KiB, called at train.py:26");
    dd_buf_clear(&out);
    r = read_rank(2);
    assert_int_equal(flight_record_describe(&out, &r), 0);
    assert_string_equal(dd_buf_str(&out), "after all_reduce, collective 1 of default_pg, "
                                          "256 KiB, called at train.py:26, in no other");
}

static void the_missing_rank_is_named(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    struct flight_of_rank ranks[] = {{0, read_rank(0)}, {1, read_rank(1)}, {2, read_rank(2)}};
    assert_int_equal(flight_record_compare(&out, ranks, 3), 1);
    assert_string_equal(dd_buf_str(&out), "rank 2 has not entered all_reduce, collective 2 of "
                                          "default_pg, 256 KiB, in which ranks 0-1 wait");
    assert_int_equal(flight_record_compare(&out, ranks, 2), 0); /* both are in it */
}

struct compared {
    const char *what;
    struct flight_of_rank ranks[5];
    size_t n;
    const char *says; /* NULL: nothing follows */
};

#define IN(r, i, op)                                                                               \
    {                                                                                              \
        (r),                                                                                       \
        {                                                                                          \
            .waiting = true, .number = (i), .group = "dp", .name = (op)                            \
        }                                                                                          \
    }
#define DONE(r, i, op)                                                                             \
    {                                                                                              \
        (r),                                                                                       \
        {                                                                                          \
            .number = (i), .group = "dp", .name = (op)                                             \
        }                                                                                          \
    }

static const struct compared compared[] = {
    {"nobody waits", {DONE(0, 4, "all_reduce"), DONE(1, 3, "all_reduce")}, 2, NULL},
    {"another collective",
     {IN(0, 4, "all_reduce"), IN(1, 4, "broadcast"), IN(2, 4, "all_reduce")},
     3,
     "rank 1 waits in another collective than all_reduce, collective 4 of dp, in which ranks 0,2 "
     "wait"},
    {"several are behind, and one may be in no group",
     {IN(0, 9, "all_gather"), DONE(3, 8, "all_gather"), DONE(4, 8, "x"), DONE(5, 2, "y"), {7, {0}}},
     5,
     "ranks 3-5 have not entered all_gather, collective 9 of dp, in which rank 0 waits"},
    {"one is in no collective of the group of all",
     {{0, {.waiting = true, .number = 1, .group = "default_pg", .name = "barrier"}}, {1, {0}}},
     2,
     "rank 1 has not entered barrier, collective 1 of default_pg, in which rank 0 waits"},
    {"another group",
     {IN(0, 9, "all_gather"), {1, {.number = 3, .group = "tp", .name = "broadcast"}}},
     2,
     NULL},
    {"one is behind in another wait",
     {IN(0, 9, "all_reduce"), IN(1, 8, "all_reduce"), IN(2, 9, "all_reduce")},
     3,
     "rank 1 has not entered all_reduce, collective 9 of dp, in which ranks 0,2 wait"},
};

static void the_ranks_that_hold_up_the_others_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(compared) / sizeof(compared[0]); i++) {
        const struct compared *c = &compared[i];
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
        print_message("%s\n", c->what);
        assert_int_equal(flight_record_compare(&out, c->ranks, c->n), c->says != NULL);
        assert_string_equal(dd_buf_str(&out), c->says != NULL ? c->says : "");
    }
}

#define BYTES(text) (text), sizeof(text) - 1

static void other_pickles_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        const char *p;
        size_t n;
    } bad[] = {
        {"nothing", BYTES("")},
        {"no end", BYTES("\x80\x02}")},
        {"a call", BYTES("\x80\x02"
                         "cos\nsystem\nq\0X\x04\0\0\0true\x85R.")},
        {"protocol 4", BYTES("\x80\x04}.")},
        {"two values", BYTES("}}.")},
        {"a mark that is left", BYTES("}(.")},
        {"a list that contains itself", BYTES("]q\0h\0a.")},
        {"a list in a tuple in itself", BYTES("]q\0h\0\x85"
                                              "a.")},
        {"a list that grows after it was recalled", BYTES("]q\0]q\1(h\0ea.")},
        {"a complete list that gets its own container", BYTES("]q\0(]q\1]q\2eh\1h\2a.")},
        {"a list that gets itself by a second place", BYTES("]q\0q\1h\0a.")},
        {"a place that is written twice", BYTES("]q\0h\0K\1q\0a.")},
        {"a string beyond the end", BYTES("X\xff\xff\xff\x7f")},
        {"a number as a key", BYTES("}K\x01K\x02s.")},
        {"a key without a value", BYTES("}(X\x01\0\0\0au.")},
        {"no string to recall", BYTES("h\x05.")},
        {"a long of 9 bytes", BYTES("\x8a\x09"
                                    "123456789.")},
        {"too deep", BYTES(")\x85\x85\x85\x85\x85\x85\x85\x85\x85\x85\x85\x85\x85.")},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        json_t *v = NULL;
        print_message("%s\n", bad[i].what);
        assert_true(pickle_decode(&v, bad[i].p, bad[i].n) < 0);
        assert_null(v);
    }
}

/* PyTorch recalls a frame that occurs twice in a stack before the list of frames is complete. */
static void a_dictionary_may_occur_again_in_its_list(void **state)
{
    (void)state;
    static const char text[] = "\x80\x02]q\0(}q\1(X\4\0\0\0lineK\7uh\1}h\1e.";
    json_t *v = NULL;
    assert_int_equal(pickle_decode(&v, text, sizeof(text) - 1), 0);
    assert_int_equal(json_array_size(v), 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(json_integer_value(json_object_get(json_array_get(v, i), "line")),
                         i == 2 ? 0 : 7);
    json_decref(v);
}

static void more_containers_than_a_dump_has_are_refused(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(PICKLE_MAX);
    json_t *v = NULL;
    assert_int_equal(dd_buf_append(&text, "]", 1), 0);
    for (int i = 0; i < PICKLE_MAX_CONTAINERS; i++)
        assert_int_equal(dd_buf_append(&text, "}a", 2), 0);
    assert_int_equal(dd_buf_append(&text, ".", 1), 0);
    assert_int_equal(pickle_decode(&v, text.data, text.len), -EMSGSIZE);
}

static void numbers_are_read(void **state)
{
    (void)state;
    static const char text[] = "\x80\x02(K\xffM\xff\xffJ\xff\xff\xff\xff\x8a\0\x8a\x01\x80\x8a\x08"
                               "\xff\xff\xff\xff\xff\xff\xff\x7fG@\x08\0\0\0\0\0\0t.";
    json_t *v = NULL;
    assert_int_equal(pickle_decode(&v, text, sizeof(text) - 1), 0);
    static const json_int_t wanted[] = {255, 65535, -1, 0, -128, INT64_MAX};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(json_integer_value(json_array_get(v, i)), wanted[i]);
    assert_true(json_real_value(json_array_get(v, 6)) == 3.0);
    json_decref(v);
}

/* Append the value, as an instruction, `times` times to the list on the stack. */
static void put_many(struct dd_buf *text, const char *value, size_t len, int times)
{
    enum { BATCH = 50000 };
    for (int i = 0; i < times; i++) {
        assert_int_equal(i % BATCH == 0 ? dd_buf_append(text, "(", 1) : 0, 0);
        assert_int_equal(dd_buf_append(text, value, len), 0);
        assert_int_equal(i % BATCH == BATCH - 1 ? dd_buf_append(text, "e", 1) : 0, 0);
    }
}

/* A list of 250,000 elements, named 500,000 times: 2 MiB, which once took minutes. */
static void a_dump_that_names_a_list_many_times_is_read_at_once(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(PICKLE_MAX);
    struct flight_record r;
#define PUT(bytes) assert_int_equal(dd_buf_append(&text, bytes, sizeof(bytes) - 1), 0)
    PUT("\x80\x02}(X\7\0\0\0versionX\1\0\0\0"
        "2X\5\0\0\0dtypeX\5\0\0\0Floatq\0X\4\0\0\0junk](]q\1");
    put_many(&text, "N", 1, 250000);
    PUT("eX\7\0\0\0entries](}(X\13\0\0\0input_sizes]");
    put_many(&text, "h\1", 2, 500000);
    PUT("X\14\0\0\0input_dtypes]");
    put_many(&text, "h\0", 2, 500000);
    PUT("ueu.");
    assert_int_equal(flight_record_read(&r, text.data, text.len), 0);
    assert_int_equal(r.bytes, 0);
}

static void a_dump_without_collectives_is_a_rank_without_any(void **state)
{
    (void)state;
    static const char text[] = "\x80\x02}(X\x07\0\0\0versionX\x04\0\0\0"
                               "2.10u.";
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    struct flight_record r;
    assert_int_equal(flight_record_read(&r, text, sizeof(text) - 1), 0);
    assert_int_equal(flight_record_describe(&out, &r), 0);
    assert_string_equal(dd_buf_str(&out), "in no collective yet");
    assert_int_equal(flight_record_read(&r, "}.", 2), -EPROTO);
}

/* A text of at most 255 bytes, as an instruction. */
static void put_text(struct dd_buf *dump, const char *text)
{
    const char head[] = {'X', (char)strlen(text), 0, 0, 0};
    assert_int_equal(dd_buf_append(dump, head, sizeof(head)), 0);
    assert_int_equal(dd_buf_puts(dump, text), 0);
}

/* Read the dump of a rank that is in its all-reduce `number` of this group. */
static struct flight_record in_group(const char *name, const char *description,
                                     unsigned char number)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1000);
    const unsigned char integer[] = {'K', number};
    struct flight_record r;
    PUT("\x80\x02}(");
    put_text(&text, "version");
    put_text(&text, "2.10");
    put_text(&text, "entries");
    PUT("](}(");
    put_text(&text, "process_group");
    PUT("(");
    put_text(&text, name);
    put_text(&text, description);
    PUT("t");
    put_text(&text, "collective_seq_id");
    assert_int_equal(dd_buf_append(&text, integer, sizeof(integer)), 0);
    put_text(&text, "profiling_name");
    put_text(&text, "nccl:all_reduce");
    PUT("ueu.");
    assert_int_equal(flight_record_read(&r, text.data, text.len), 0);
    return r;
}

/* Ranks 0 to 2 wait for a rank that has no record; the others have done fewer collectives, of
 * another group. */
static void groups_with_one_description_are_not_compared(void **state)
{
    static const char *const descriptions[] = {"mesh_tp", "undefined"};
    static const char *const groups[] = {"group 7 (mesh_tp)", "group 7"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
        const struct flight_record ahead = in_group("7", descriptions[i], 90);
        const struct flight_record other = in_group("8", descriptions[i], 20);
        const struct flight_of_rank ranks[] = {
            {0, ahead}, {1, ahead}, {2, ahead}, {4, other}, {5, other}};
        assert_string_equal(ahead.group, groups[i]);
        assert_int_equal(flight_record_compare(&out, ranks, 5), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_rank_is_described),
        cmocka_unit_test(the_missing_rank_is_named),
        cmocka_unit_test(the_ranks_that_hold_up_the_others_are_named),
        cmocka_unit_test(other_pickles_are_refused),
        cmocka_unit_test(a_dictionary_may_occur_again_in_its_list),
        cmocka_unit_test(more_containers_than_a_dump_has_are_refused),
        cmocka_unit_test(numbers_are_read),
        cmocka_unit_test(a_dump_that_names_a_list_many_times_is_read_at_once),
        cmocka_unit_test(a_dump_without_collectives_is_a_rank_without_any),
        cmocka_unit_test(groups_with_one_description_are_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
