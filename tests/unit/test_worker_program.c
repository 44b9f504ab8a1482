/* worker/program: from SCRIPT and the environment to an argument list. */
#include "base/auto.h"
#include "worker/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void make(const char *path, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static char dir[] = "/tmp/test_worker_program.XXXXXX";

/* Create a directory with all kinds of programs and change to it; venv, conda and bin have
 * interpreters. */
static int setup(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL || chdir(dir) < 0)
        return -1;
    static const char *const dirs[] = {"venv", "venv/bin", "conda", "conda/bin", "old",   "old/bin",
                                       "bin",  "pkg",      "sub",   "dir.py",    "novenv"};
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
        assert_int_equal(mkdir(dirs[i], 0700), 0);
    make("x.py", 0644);
    make("train", 0755);
    make("notes", 0644);
    make("sub/prog", 0755);
    make("pkg/__main__.py", 0644);
    make("venv/bin/python3", 0755);
    make("conda/bin/python3", 0755);
    make("old/bin/python", 0755);
    make("bin/python3", 0755);
    make("bin/tool", 0755);
    make("tool", 0755);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[100];
    (void)snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
    return chdir("/") < 0 || system(cmd) != 0 ? -1 : 0;
}

#define LIST(...) {__VA_ARGS__, NULL}

static void program_becomes_an_argument_list(void **state)
{
    (void)state;
    static const struct {
        const char *argv[5];
        bool module, no_python;
        const char *env[4];
        const char *want; /* arguments joined by '|' */
    } rows[] = {
        {LIST("x.py", "-a", "b c"), false, false, LIST("PATH=bin"), "bin/python3|-u|x.py|-a|b c"},
        {LIST("./x.py"), false, false, LIST("VIRTUAL_ENV=venv", "CONDA_PREFIX=conda", "PATH=bin"),
         "venv/bin/python3|-u|./x.py"},
        {LIST("x.py"), false, false, LIST("VIRTUAL_ENV=", "CONDA_PREFIX=conda", "PATH=bin"),
         "conda/bin/python3|-u|x.py"},
        {LIST("x.py"), false, false, LIST("VIRTUAL_ENV=novenv", "CONDA_PREFIX=old", "PATH=bin"),
         "old/bin/python|-u|x.py"},
        {LIST("x.py"), false, false, LIST("VIRTUAL_ENV=gone", "PATH=bin"), "bin/python3|-u|x.py"},
        {LIST("x.py"), false, false, LIST("PATH=/no/such:old/bin"), "old/bin/python|-u|x.py"},
        {LIST("x.py"), false, false, LIST("PYTHON_EXEC=tool", "VIRTUAL_ENV=venv", "PATH=bin"),
         "bin/tool|-u|x.py"},
        {LIST("x.py"), false, false, LIST("PYTHON_EXEC=./old/bin/python", "PATH=bin"),
         "./old/bin/python|-u|x.py"},
        {LIST("pkg.cli", "--x"), true, false, LIST("PATH=bin"), "bin/python3|-u|-m|pkg.cli|--x"},
        {LIST("pkg"), false, false, LIST("PATH=bin"), "bin/python3|-u|pkg"},
        {LIST("sub/prog", "1"), false, false, LIST("PATH=bin"), "sub/prog|1"},
        {LIST("tool"), false, false, LIST("PATH=bin"), "bin/tool"}, /* PATH before the directory */
        {LIST("train", "x.py"), false, false, LIST("PATH=bin"), "./train|x.py"},
        {LIST("train"), false, true, LIST("PATH=bin"), "./train"},
        {LIST("python3", "x.py"), false, true, LIST("PATH=bin"), "bin/python3|x.py"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct program_spec spec = {.argv = (char *const *)(uintptr_t)rows[i].argv,
                                    .module = rows[i].module,
                                    .no_python = rows[i].no_python,
                                    .env = (char *const *)(uintptr_t)rows[i].env};
        DD_AUTO(strv) struct dd_strv out = {0};
        struct dd_err err = {0};
        assert_int_equal(program_resolve(&out, &spec, &err), 0);
        char got[400] = "";
        for (size_t k = 0; k < out.n; k++)
            (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", k > 0 ? "|" : "",
                           out.v[k]);
        assert_string_equal(got, rows[i].want);
    }
}

/* "/later" is staged, and this node does not have it yet. */
static void program_that_arrives_later_is_not_required(void **state)
{
    (void)state;
    static const struct {
        const char *argv[3];
        const char *env[3];
        int rc;
        const char *want;
    } rows[] = {
        {LIST("/later/bin/tool", "1"), LIST("PATH=bin"), 0, "/later/bin/tool|1"},
        {LIST("/later2/bin/tool"), LIST("PATH=bin"), -ENOENT, ""},
        {LIST("x.py"), LIST("VIRTUAL_ENV=/later", "PATH=bin"), 0, "/later/bin/python3|-u|x.py"},
        {LIST("x.py"), LIST("PYTHON_EXEC=/later/py"), 0, "/later/py|-u|x.py"},
        {LIST("x.py"), LIST("PATH=/later/bin:bin"), 0, "python3|-u|x.py"},
        {LIST("tool"), LIST("PATH=/later/bin:bin"), 0, "tool"},
        {LIST("other"), LIST("PATH=/later"), 0, "other"},
        {LIST("train"), LIST("PATH=/later/bin:bin"), 0, "./train"},
        {LIST("/later/y.py"), LIST("PATH=bin"), 0, "bin/python3|-u|/later/y.py"},
        {LIST("/no/y.py"), LIST("PATH=bin"), -ENOENT, ""},
    };
    static const char *const arriving[] = {"/elsewhere", "/later", NULL};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct program_spec spec = {.argv = (char *const *)(uintptr_t)rows[i].argv,
                                    .env = (char *const *)(uintptr_t)rows[i].env,
                                    .arriving = (char *const *)(uintptr_t)arriving};
        DD_AUTO(strv) struct dd_strv out = {0};
        char got[400] = "";
        assert_int_equal(program_resolve(&out, &spec, NULL), rows[i].rc);
        for (size_t k = 0; k < out.n; k++)
            (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", k > 0 ? "|" : "",
                           out.v[k]);
        assert_string_equal(got, rows[i].want);
    }
}

static void program_in_an_arriving_directory_becomes_absolute(void **state)
{
    (void)state;
    DD_AUTO(free) char *here = getcwd(NULL, 0);
    DD_AUTO(free) char *want = NULL;
    DD_AUTO(strv) struct dd_strv out = {0};
    char *arriving[] = {here, NULL};
    char name[] = "./not-yet/tool";
    char *argv[] = {name, NULL};
    char *env[] = {NULL};
    const struct program_spec spec = {.argv = argv, .env = env, .arriving = arriving};
    assert_true(asprintf(&want, "%s/not-yet/tool", here) > 0);
    assert_int_equal(program_resolve(&out, &spec, NULL), 0);
    assert_string_equal(out.v[0], want);
}

static void program_that_cannot_be_gets_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *argv[3];
        bool module, no_python;
        const char *env[3];
        int rc;
        const char *says;
    } rows[] = {
        {{NULL}, false, false, LIST("PATH=bin"), -EINVAL, "missing program"},
        {LIST(""), false, false, LIST("PATH=bin"), -EINVAL, "missing program"},
        {LIST("x"), true, true, LIST("PATH=bin"), -EINVAL, "--module and --no-python"},
        {LIST("y.py"), false, false, LIST("PATH=bin"), -ENOENT, "the script 'y.py' does not exist"},
        {LIST("xx.py"), false, false, LIST("PATH=bin"), -ENOENT, "\n  tip: did you mean 'x.py'?"},
        {LIST("./xx.py"), false, false, LIST("PATH=bin"), -ENOENT, "did you mean './x.py'?"},
        {LIST("/no/y.py"), false, false, LIST("PATH=bin"), -ENOENT, "'/no/y.py'"},
        {LIST("dir.py"), false, false, LIST("PATH=bin"), -EISDIR, "is a directory"},
        {LIST("x.py"), false, false, LIST("PATH=sub"), -ENOENT, "or PATH (sub)"},
        {LIST("x.py"), false, false, LIST("PYTHON_EXEC=/no/python"), -ENOENT,
         "PYTHON_EXEC=/no/python"},
        {LIST("mod"), true, false, LIST("PATH=sub"), -ENOENT, "set PYTHON_EXEC"},
        {LIST("nothing"), false, false, LIST("PATH=bin"), -ENOENT, "'nothing' in PATH or in the"},
        {LIST("x"), false, false, LIST("PATH=sub"), -ENOENT, "\n  tip: did you mean 'x.py'?"},
        {LIST("x --all"), false, false, LIST("PATH=sub"), -ENOENT, "\n  tip: if these are a"},
        {LIST("sh x.py"), false, false, LIST("PATH=sub"), -ENOENT, "omit the quotes"},
        {LIST("A_1=x", "x.py"), false, false, LIST("PATH=sub"), -ENOENT, ": -x A_1=x"},
        {LIST("./nothing"), false, false, LIST("PATH=bin"), -ENOENT, "'./nothing': No such file"},
        {LIST("notes"), false, false, LIST("PATH=bin"), -EACCES, "chmod +x notes"},
        {LIST("./notes"), false, false, LIST("PATH=bin"), -EACCES, "chmod +x ./notes"},
        {LIST("x.py"), false, true, LIST("PATH=bin"), -EACCES, "chmod +x x.py"},
        {LIST("sub"), false, false, LIST("PATH=bin"), -EISDIR, "is a directory"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct program_spec spec = {.argv = (char *const *)(uintptr_t)rows[i].argv,
                                    .module = rows[i].module,
                                    .no_python = rows[i].no_python,
                                    .env = (char *const *)(uintptr_t)rows[i].env};
        DD_AUTO(strv) struct dd_strv out = {0};
        struct dd_err err = {0};
        int rc = program_resolve(&out, &spec, &err);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu says: %s", i, err.text);
        assert_int_equal(rc, rows[i].rc);
    }
}

static void program_arguments_take_the_local_rank(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } rows[] = {
        {"", ""},
        {"plain", "plain"},
        {"$local_rank", "12"},
        {"a${local_rank}b", "a12b"},
        {"$local_rank.log", "12.log"},
        {"$local_ranks", "$local_ranks"},
        {"$LOCAL_RANK", "$LOCAL_RANK"},
        {"${local_rank", "${local_rank"},
        {"$$local_rank", "$local_rank"},
        {"$$$local_rank", "$12"},
        {"$", "$"},
        {"cost: 5$", "cost: 5$"},
        {"$HOME ${x}", "$HOME ${x}"},
        {"$local_rank$local_rank", "1212"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(free) char *in = strdup(rows[i].in);
        char *argv[] = {in, NULL};
        DD_AUTO(strv) struct dd_strv out = {0};
        assert_int_equal(program_for_rank(&out, argv, 12), 0);
        assert_int_equal(out.n, 1);
        assert_string_equal(out.v[0], rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(program_that_arrives_later_is_not_required),
        cmocka_unit_test(program_in_an_arriving_directory_becomes_absolute),
        cmocka_unit_test(program_that_cannot_be_gets_a_sentence),
        cmocka_unit_test(program_becomes_an_argument_list),
        cmocka_unit_test(program_arguments_take_the_local_rank),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
