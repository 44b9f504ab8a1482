/* rdzv: control messages, written and read through one table. */
#include "base/buf.h"
#include "base/io.h"
#include "config.h"
#include "rdzv/msg.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int decode(struct msg *m, const char *text, struct dd_err *err)
{
    return msg_decode(m, text, strlen(text), err);
}

static void msg_comes_back_as_it_was_sent(void **state)
{
    (void)state;
    DD_AUTO(free) char *text = NULL;
    DD_AUTO(msg) struct msg back = {0};
    DD_AUTO(strv) struct dd_strv addrs = {0};
    assert_int_equal(dd_strv_push(&addrs, "10.0.0.1"), 0);
    assert_int_equal(msg_encode(&text, MSG(JOIN, .index = -1, .nnodes = 4, .slots = 2, .pid = 7,
                                           .name = "nöde", .addr = "fd00::1", .addrs = &addrs)),
                     0);
    assert_int_equal(decode(&back, text, NULL), 0);
    assert_int_equal(back.type, MSG_JOIN);
    assert_int_equal(back.join.index, -1);
    assert_int_equal(back.join.slots, 2);
    assert_string_equal(back.join.name, "nöde");
    assert_string_equal(back.join.addr, "fd00::1");
    assert_int_equal(back.join.addrs->n, 1);
    assert_string_equal(back.join.addrs->v[0], "10.0.0.1");
}

static void msg_is_sent_whatever_bytes_a_worker_wrote(void **state)
{
    (void)state;
    DD_AUTO(free) char *text = NULL;
    DD_AUTO(msg) struct msg back = {0};
    assert_int_equal(msg_encode(&text, MSG(EXIT, .code = 3, .text = "k\xc3\xb6nnte \xff nicht")),
                     0);
    assert_int_equal(decode(&back, text, NULL), 0);
    assert_int_equal(back.exit.code, 3);
    assert_string_equal(back.exit.text, "k\xc3\xb6nnte ? nicht");
}

static void msg_refuses_what_does_not_fit_the_table(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "invalid JSON"},
        {"[]", "not a message"},
        {"{}", "not a message"},
        {"{\"type\":\"nonsense\",\"v\":2}", "a message of a later version"},
        {"{\"type\":7}", "not a message"},
        {"{\"type\":\"done\"}", "'round'"},
        {"{\"type\":\"done\",\"round\":-1}", "'round'"},
        {"{\"type\":\"done\",\"round\":1.5}", "'done': field 'round'"},
        {"{\"type\":\"done\",\"round\":\"1\"}", "'round'"},
        {"{\"type\":\"done\",\"round\":1,\"round\":2}", "invalid JSON"},
        {"{\"type\":\"done\",\"round\":99999999999}", "'round'"},
        {"{\"type\":\"finish\",\"code\":256,\"report\":0,\"text\":\"\"}", "'code'"},
        {"{\"type\":\"status\",\"text\":\"a\\u0000b\"}", "invalid JSON"},
        {"{\"type\":\"status\",\"text\":7}", "'text'"},
        {"{\"type\":\"done\",\"round\":1} x", "invalid JSON"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct msg m = {0};
        struct dd_err err = {0};
        if (decode(&m, rows[i].text, &err) != -EPROTO)
            fail_msg("%s was taken", rows[i].text);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("%s: '%s' does not say '%s'", rows[i].text, err.text, rows[i].says);
    }
}

static void msg_bounds_lists_and_texts(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 20);
    struct msg m = {0};
    (void)dd_buf_puts(&b, "{\"type\":\"status\",\"text\":\"");
    for (int i = 0; i < 16385; i++)
        (void)dd_buf_puts(&b, "x");
    (void)dd_buf_puts(&b, "\"}");
    assert_int_equal(msg_decode(&m, b.data, b.len, NULL), -EPROTO);
    dd_buf_clear(&b);
    (void)dd_buf_puts(
        &b,
        "{\"type\":\"join\",\"index\":0,\"nnodes\":1,\"slots\":1,\"pid\":1,\"name\":\"n\",\"addr\":\"\",\"addrs\":[\"a\"");
    for (int i = 0; i < MSG_MAX_LIST; i++)
        (void)dd_buf_puts(&b, ",\"a\"");
    (void)dd_buf_puts(&b, "]}");
    assert_int_equal(msg_decode(&m, b.data, b.len, NULL), -EPROTO);
}

static void msg_skips_fields_of_later_versions(void **state)
{
    (void)state;
    DD_AUTO(msg) struct msg m = {0};
    assert_int_equal(
        decode(
            &m,
            "{\"type\":\"done\",\"v\":1,\"ddrun\":\"99.0\",\"round\":3,\"sent_ns\":0,\"left\":1,\"stopped\":0,\"killed\":0,\"first_rank\":0,\"first_ns\":0,\"unfit\":\"\",\"ports\":\"\",\"mood\":\"good\"}",
            NULL),
        0);
    assert_int_equal(m.done.round, 3);
}

static void msg_of_a_later_version_is_skipped_unless_it_says_that_it_is_needed(void **state)
{
    (void)state;
    struct msg m = {0};
    struct dd_err err = {0};
    assert_int_equal(decode(&m, "{\"type\":\"mood\",\"v\":1,\"how\":\"good\"}", &err), -ENOMSG);
    assert_int_equal(decode(&m, "{\"type\":\"mood\",\"v\":2,\"how\":\"good\"}", &err), -EPROTO);
    assert_int_equal(
        decode(&m, "{\"type\":\"commit\",\"v\":2,\"ddrun\":\"99.0\",\"round\":1}", &err), -EPROTO);
    assert_non_null(strstr(err.text, "'commit'"));
    assert_non_null(strstr(err.text, "ddrun 99.0"));
    assert_non_null(strstr(err.text, "ddrun " PACKAGE_VERSION));
    assert_int_equal(decode(&m, "{\"type\":\"commit\",\"v\":1,\"ddrun\":\"\\u001b[2J\"}", &err),
                     -EPROTO);
    assert_null(strchr(err.text, '\033'));
}

static void msg_cut_anywhere_is_refused(void **state)
{
    (void)state;
    const char *text =
        "{\"type\":\"exit\",\"round\":0,\"rank\":3,\"local_rank\":1,\"pid\":9,\"code\":7,\"signal\":0,"
        "\"oom\":0,\"ended_ns\":5,\"sent_ns\":6,\"error\":\"\",\"trace\":\"\",\"log\":\"\",\"text\":\"x\"}";
    for (size_t n = 0; n < strlen(text); n++) {
        struct msg m = {0};
        assert_int_equal(msg_decode(&m, text, n, NULL), -EPROTO);
    }
    DD_AUTO(msg) struct msg m = {0};
    assert_int_equal(decode(&m, text, NULL), 0);
    assert_int_equal(m.exit.code, 7);
}

/* Return the expected column "fields" of the protocol's table: the fields in wire order. */
static char *fields_text(enum msg_type type)
{
    struct dd_buf b = DD_BUF_INIT(4096);
    for (const struct msg_field *f = msg_fields(type); f->name != NULL; f++) {
        (void)dd_buf_printf(&b, "%s`%s`", b.len > 0 ? ", " : "", f->name);
        if (f->kind == MSG_STR)
            (void)dd_buf_printf(&b, " (%lld bytes)", (long long)f->max);
        else if (f->kind == MSG_LIST)
            (void)dd_buf_printf(&b, " (%d of %lld bytes)", MSG_MAX_LIST, (long long)f->max);
        else if (f->kind == MSG_BOOL)
            (void)dd_buf_puts(&b, " (0, 1)");
        else if (f->max < INT32_MAX)
            (void)dd_buf_printf(&b, " (%lld to %lld)", (long long)f->min, (long long)f->max);
    }
    return dd_buf_steal(&b);
}

/* Return the column "fields" of `type` in the first table that lists it, or NULL. free(). */
static char *documented_fields(const char *doc, enum msg_type type)
{
    char row[64];
    (void)snprintf(row, sizeof(row), "\n| `%s` | ", msg_type_name(type));
    const char *from = strstr(doc, row);
    from = from != NULL ? strchr(from + strlen(row), '|') : NULL; /* skip "name in the source" */
    from = from != NULL ? strchr(from + 1, '|') : NULL;           /* skip "from" */
    const char *end = from != NULL ? strchr(from + 1, '|') : NULL;
    if (end == NULL)
        return NULL;
    const size_t n = (size_t)(end - from);
    return n < 4 ? strdup("") : strndup(from + 2, n - 3); /* without the spaces around it */
}

static void protocol_document_names_every_field_and_its_limits(void **state)
{
    (void)state;
    char path[4096];
    const char *src = getenv("srcdir");
    DD_AUTO(buf) struct dd_buf doc = DD_BUF_INIT(1 << 20);
    (void)snprintf(path, sizeof(path), "%s/docs/protocol/control-1.md", src != NULL ? src : ".");
    assert_int_equal(dd_read_file(path, &doc, NULL), 0);
    for (int t = 0; t < MSG_TYPE_MAX; t++) {
        DD_AUTO(free) char *want = fields_text((enum msg_type)t);
        DD_AUTO(free) char *have = documented_fields(dd_buf_str(&doc), (enum msg_type)t);
        if (have == NULL || strcmp(have, want) != 0)
            fail_msg("%s: '%s' has the fields\n%s\nnot\n%s", path, msg_type_name((enum msg_type)t),
                     want, have != NULL ? have : "(no row)");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(msg_comes_back_as_it_was_sent),
        cmocka_unit_test(msg_is_sent_whatever_bytes_a_worker_wrote),
        cmocka_unit_test(msg_refuses_what_does_not_fit_the_table),
        cmocka_unit_test(msg_bounds_lists_and_texts),
        cmocka_unit_test(msg_skips_fields_of_later_versions),
        cmocka_unit_test(msg_of_a_later_version_is_skipped_unless_it_says_that_it_is_needed),
        cmocka_unit_test(msg_cut_anywhere_is_refused),
        cmocka_unit_test(protocol_document_names_every_field_and_its_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
