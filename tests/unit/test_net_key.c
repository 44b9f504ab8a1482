/* The job's key: every source, its rejection, and that both sides derive the same bytes. */
#include "config.h"

#include "base/io.h"
#include "net/key.h"
#include "net/key_inner.h"
#include "net_munged.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#if HAVE_MUNGE
#include <munge.h>
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#define GOOD "2f7c1d9e04b8a35f6611e0c97d4ab852"
#define OTHER "c3a90e5b7714fd286b1f08e4952dca73"

enum { NOBODY = 65534 };

struct fixture {
    char dir[64]; /* also the home directory */
    char home_env[80];
    char *env[4];
    struct net_key_input in;
    struct dd_err err;
};

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/ddrun-key-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->home_env, sizeof(f->home_env), "HOME=%s", f->dir);
    f->in = (struct net_key_input){
        .env = f->env, .job_id = "slurm-1.0", .munge_socket = "/nonexistent/munge.socket"};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    (void)nftw(f->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(f);
    return 0;
}

static const char *write_file(struct fixture *f, const char *name, const char *text, mode_t mode)
{
    static char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(dd_write_full(fd, text, strlen(text)), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    (void)close(fd);
    return path;
}

static struct net_key leader_key(struct fixture *f)
{
    struct net_key key;
    assert_int_equal(net_key_for_leader(&key, &f->in, &f->err), 0);
    return key;
}

static void assert_refused(struct fixture *f, int rc, const char *says)
{
    struct net_key key = {.source = "untouched"};
    assert_int_equal(net_key_for_leader(&key, &f->in, &f->err), rc);
    if (strstr(f->err.text, says) == NULL)
        fail_msg("'%s' does not say '%s'", f->err.text, says);
    assert_string_equal(key.source, "untouched");
}

/* ---- a key that both sides have ---- */

static void key_file_is_refused_when_it_proves_nothing(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *text;
        mode_t mode;
        const char *says;
    } rows[] = {
        {GOOD, 0644, "accessible to other users (mode 0644)"},
        {GOOD, 0640, "accessible to other users (mode 0640)"},
        {GOOD, 0601, "accessible to other users"},
        {"", 0600, "is empty"},
        {"\n\r\n", 0600, "is empty"},
        {"0123456789abcdef\n", 0600, "is easy to guess: its entropy is about 28 bits (16 bytes)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        f->in.key_file = write_file(f, "k", rows[i].text, rows[i].mode);
        assert_refused(f, -EINVAL, rows[i].says);
        assert_non_null(strstr(f->err.text, f->in.key_file));
        struct net_key key;
        assert_int_equal(net_key_for_agent(&key, &f->in, &f->err), -EINVAL);
    }
}

static void key_file_is_refused_when_it_is_no_file_of_mine(void **state)
{
    struct fixture *f = *state;
    f->in.key_file = f->dir;
    assert_refused(f, -EINVAL, "is not a regular file");
    f->in.key_file = "/nonexistent/key";
    assert_refused(f, -ENOENT, "cannot open key file '/nonexistent/key'");
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/fifo", f->dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    f->in.key_file = path;
    assert_refused(f, -EINVAL, "is not a regular file"); /* without blocking in open() */
    char *big = malloc(70001);
    memset(big, 'x', 70000);
    big[70000] = '\0';
    f->in.key_file = write_file(f, "big", big, 0600);
    free(big);
    assert_refused(f, -EINVAL, "larger than 65536 bytes");
    f->in.key_file = write_file(f, "k", GOOD, 0600);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(f->in.key_file, NOBODY, NOBODY), 0);
    assert_refused(f, -EINVAL, "belongs to uid 65534, not to you (uid 0)");
}

static void key_file_gives_both_sides_the_same_key(void **state)
{
    struct fixture *f = *state;
    struct net_key agent;
    struct net_key accepted;
    f->in.key_file = write_file(f, "k", GOOD, 0600);
    struct net_key leader = leader_key(f);
    assert_int_equal(leader.method, NET_KEY_SHARED);
    assert_non_null(strstr(leader.source, f->in.key_file));
    f->in.key_file = write_file(f, "k", GOOD "\n", 0400);
    assert_int_equal(net_key_for_agent(&agent, &f->in, &f->err), 0);
    assert_memory_equal(leader.bytes, agent.bytes, NET_KEY_LEN);
    assert_int_equal(net_key_accept(&accepted, &f->in, NET_KEY_SHARED, NULL, &f->err), 0);
    assert_memory_equal(leader.bytes, accepted.bytes, NET_KEY_LEN);
    f->in.key_file = write_file(f, "k", OTHER, 0600);
    assert_int_equal(net_key_for_agent(&agent, &f->in, &f->err), 0);
    assert_memory_not_equal(leader.bytes, agent.bytes, NET_KEY_LEN);
}

static void key_in_the_environment_must_be_hex_and_is_not_shown(void **state)
{
    struct fixture *f = *state;
    static char bad[][80] = {
        "DDRUN_KEY=1234secret",
        "DDRUN_KEY=00112233445566778899aabbccddeeff00112233445566778899aabbccddeef",
        "DDRUN_KEY=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff0",
        "DDRUN_KEY=g0112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        "DDRUN_KEY=0x112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        f->env[0] = bad[i];
        assert_refused(f, -EINVAL, "DDRUN_KEY must have 64 hexadecimal digits");
        assert_null(strstr(f->err.text, bad[i] + strlen("DDRUN_KEY=")));
    }
    char lower[] = "DDRUN_KEY=5d3f0a6c81e2497bb0c4fd95167a28e3d94e7b1f2c6085a3ee39710d5fa2c846";
    char upper[] = "DDRUN_KEY=5D3F0A6C81E2497BB0C4FD95167A28E3D94E7B1F2C6085A3EE39710D5FA2C846";
    f->env[0] = lower;
    struct net_key a = leader_key(f);
    f->env[0] = upper;
    struct net_key b = leader_key(f);
    assert_memory_equal(a.bytes, b.bytes, NET_KEY_LEN);
    assert_string_equal(a.source, "DDRUN_KEY");
}

static void sources_win_in_their_order(void **state)
{
    struct fixture *f = *state;
    char hex[] = "DDRUN_KEY=5d3f0a6c81e2497bb0c4fd95167a28e3d94e7b1f2c6085a3ee39710d5fa2c846";
    char file[300];
    (void)snprintf(file, sizeof(file), "DDRUN_KEY_FILE=%s", write_file(f, "env", GOOD, 0600));
    f->in.cookie = "0123456789ABCDEF0123456789ABCDEF";
    f->in.use_cookie = true;
    assert_string_equal(leader_key(f).source, "PBS_JOBCOOKIE");
    assert_true(leader_key(f).guessable);
    f->in.psk = "a secret of this job";
    assert_string_equal(leader_key(f).source, "the launcher's secret of this job");
    assert_false(leader_key(f).guessable);
    f->env[0] = hex;
    assert_string_equal(leader_key(f).source, "DDRUN_KEY");
    f->env[1] = file;
    assert_non_null(strstr(leader_key(f).source, "/env'"));
    f->in.key_file = write_file(f, "option", OTHER, 0600);
    assert_non_null(strstr(leader_key(f).source, "/option'"));
    f->in.insecure = true;
    assert_int_equal(leader_key(f).method, NET_KEY_NONE);
}

static void nothing_in_common_names_the_choices(void **state)
{
    struct fixture *f = *state;
    assert_refused(f, -ENOKEY, "--key-file or DDRUN_KEY_FILE");
    assert_non_null(strstr(f->err.text, "--insecure"));
    assert_non_null(strstr(f->err.text, "HOME is not set, or empty"));
}

static void a_cookie_is_a_key_only_on_demand(void **state)
{
    struct fixture *f = *state;
    struct net_key key;
    f->in.cookie = "0123456789ABCDEF0123456789ABCDEF";
    assert_refused(f, -ENOKEY, "--key-source=pbs-cookie");
    assert_int_equal(net_key_for_agent(&key, &f->in, &f->err), 0);
    assert_int_equal(key.method, NET_KEY_NONE);
    assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_SHARED, "", &f->err), -ENOKEY);
    f->in.use_cookie = true;
    assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_SHARED, "", &f->err), 0);
}

static void secrets_that_are_easy_to_guess_are_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "abababababababababababababababababababababababababababababababab",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "passwordpasswordpasswordpasswordpasswordpassword",
        "Password1234Password1234Password1234",
        "correct horse battery staple",
        "the quick brown fox jumps over the dog",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        "2f7c1d9e04b8a35f", /* random, but too short */
    };
    static const char *const good[] = {
        GOOD,
        OTHER,
        "9V1xw0cFqKZ3yTn5uHr2mA==",
        "kPzXvQmLbRtYwNsGhJdCfA",
        "P7Q2XJ5RZK4MWN3TBV6YHCLD2F",
        "91730528466091582734905712863049517283",
    };
    char env[80];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        f->in.key_file = write_file(f, "k", bad[i], 0600);
        assert_refused(f, -EINVAL, "is easy to guess");
        assert_null(strstr(f->err.text, bad[i]));
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        f->in.key_file = write_file(f, "k", good[i], 0600);
        assert_int_equal(leader_key(f).method, NET_KEY_SHARED);
    }
    f->in.key_file = NULL;
    (void)snprintf(env, sizeof(env), "DDRUN_KEY=%064d", 0);
    f->env[0] = env;
    assert_refused(f, -EINVAL, "DDRUN_KEY is easy to guess");
}

/* The check rejects at most 1 in 10^9 random keys of 128 bits, in any encoding. */
static void random_secrets_are_taken(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        unsigned char key[NET_KEY_LEN];
        char hex[2 * NET_KEY_LEN + 1];
        assert_int_equal(net_key_random(key), 0);
        for (size_t k = 0; k < NET_KEY_LEN; k++)
            (void)snprintf(hex + 2 * k, 3, "%02x", key[k]);
        assert_true(key_strength(key, NET_KEY_LEN / 2) >= KEY_STRENGTH_MIN);
        assert_true(key_strength(key, NET_KEY_LEN) >= KEY_STRENGTH_MIN);
        assert_true(key_strength((unsigned char *)hex, NET_KEY_LEN) >= KEY_STRENGTH_MIN);
    }
}

static void runs_of_one_job_id_have_different_session_keys(void **state)
{
    struct fixture *f = *state;
    unsigned char a[NET_KEY_LEN], b[NET_KEY_LEN];
    f->in.psk = "a secret of this job";
    const struct net_key key = leader_key(f);
    assert_int_equal(net_key_psk(a, &key, &f->in), 0);
    assert_memory_equal(a, key.bytes, NET_KEY_LEN);
    f->in.run = "run 1";
    assert_int_equal(net_key_psk(a, &key, &f->in), 0);
    f->in.run = "run 2";
    assert_int_equal(net_key_psk(b, &key, &f->in), 0);
    assert_memory_not_equal(a, key.bytes, NET_KEY_LEN);
    assert_memory_not_equal(a, b, NET_KEY_LEN);
}

static void seeds_come_from_what_nodes_have_before_they_meet(void **state)
{
    struct fixture *f = *state;
    char env[] = "DDRUN_PORT_SEED=00000000000000a1";
    assert_int_equal(net_key_seed(&f->in), 0);
    f->env[0] = env;
    assert_int_equal(net_key_seed(&f->in), 0xa1);
    f->in.cookie = "0123456789ABCDEF0123456789ABCDEF";
    f->in.use_cookie = true; /* guessable: a port would reveal the cookie */
    assert_int_equal(net_key_seed(&f->in), 0xa1);
    f->in.psk = "a secret of this job";
    const uint64_t seed = net_key_seed(&f->in);
    assert_true(seed != 0 && seed != 0xa1);
    f->in.job_id = "slurm-2.0";
    assert_true(net_key_seed(&f->in) != seed);
    f->in.psk = NULL;
    f->in.use_cookie = false;
    env[strlen(env) - 1] = 'x';
    assert_int_equal(net_key_seed(&f->in), 0);
}

static void agent_takes_only_what_it_can_check(void **state)
{
    struct fixture *f = *state;
    struct net_key key;
    assert_int_equal(net_key_for_agent(&key, &f->in, &f->err), 0);
    assert_int_equal(key.method, NET_KEY_NONE);
    assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_NONE, "", &f->err), -EPERM);
    assert_non_null(strstr(f->err.text, "--insecure"));
    assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_SHARED, "", &f->err), -ENOKEY);
    assert_int_equal(net_key_accept(&key, &f->in, (enum net_key_method)9, "", &f->err), -ENOTSUP);
    assert_true(net_key_accept(&key, &f->in, NET_KEY_MUNGE, NULL, &f->err) < 0);
    assert_true(net_key_accept(&key, &f->in, NET_KEY_MUNGE, "MUNGE:AwQFAAC8:", &f->err) < 0);
    f->in.insecure = true;
    assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_NONE, "", &f->err), 0);
}

/* Whoever listens at a candidate port may offer a credential: this one would ask munged. */
static void agent_with_a_shared_key_takes_no_other(void **state)
{
    struct fixture *f = *state;
    struct net_key key;
    f->in.psk = GOOD;
    f->in.psk_source = "the round";
    for (enum net_key_method m = NET_KEY_MUNGE; m < NET_KEY_METHOD_MAX; m++) {
        f->err = (struct dd_err){0};
        assert_int_equal(net_key_accept(&key, &f->in, m, "MUNGE:AwQFAAC8:", &f->err), -EPERM);
        assert_non_null(strstr(f->err.text, "this node uses its own (the round)"));
    }
    assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_SHARED, "", &f->err), 0);
    f->in = (struct net_key_input){.env = f->in.env, .job_id = f->in.job_id, .insecure = true};
    assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_MUNGE, "MUNGE:AwQFAAC8:", &f->err),
                     -EPERM);
}

/* ---- home directory ---- */

static void use_home(struct fixture *f)
{
    f->env[0] = f->home_env;
}

static const char *home_path(const struct fixture *f, const char *name)
{
    static char path[300];
    (void)snprintf(path, sizeof(path), "%s/.ddrun/%s", f->dir, name);
    return path;
}

/* Return the tag in the name of the key's file, which the daemon sends to agents. */
static const char *tag_of(const struct fixture *f, const struct net_key *key)
{
    static char tags[4][40];
    static int n;
    struct dd_err err = {0};
    char *text = NULL;
    char *tag = tags[n++ % 4];
    assert_int_equal(net_key_credential(&text, key, &f->in, &err), 0);
    (void)snprintf(tag, sizeof(tags[0]), "%s", text);
    free(text);
    return tag;
}

static const char *file_of(const struct fixture *f, const struct net_key *key)
{
    static char name[80];
    (void)snprintf(name, sizeof(name), "slurm-1.0.%s.key", tag_of(f, key));
    return name;
}

static void home_hands_the_key_on_and_is_cleaned_up(void **state)
{
    struct fixture *f = *state;
    struct net_key agent;
    struct stat st;
    use_home(f);
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_HOME, "0011223344556677", &f->err),
                     -ENOENT);
    struct net_key leader = leader_key(f);
    assert_int_equal(leader.method, NET_KEY_HOME);
    assert_int_equal(stat(home_path(f, ""), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(home_path(f, file_of(f, &leader)), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_HOME, tag_of(f, &leader), &f->err), 0);
    assert_memory_equal(leader.bytes, agent.bytes, NET_KEY_LEN);
    net_key_cleanup(&leader, &f->in);
    assert_int_equal(stat(home_path(f, file_of(f, &leader)), &st), -1);
}

static void home_follows_no_link_and_opens_no_other_file(void **state)
{
    struct fixture *f = *state;
    struct net_key agent;
    char victim[256];
    static const char *const bad[] = {"", "../../../etc/pas", "00112233445566771",
                                      "001122334455667", "001122334455667G"};
    use_home(f);
    struct net_key leader = leader_key(f);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_HOME, bad[i], &f->err), -EPROTO);
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_HOME, NULL, &f->err), -EPROTO);
    (void)snprintf(victim, sizeof(victim), "%s", write_file(f, "victim", "precious", 0600));
    assert_int_equal(unlink(home_path(f, file_of(f, &leader))), 0);
    assert_int_equal(symlink(victim, home_path(f, file_of(f, &leader))), 0);
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_HOME, tag_of(f, &leader), &f->err),
                     -ELOOP);
}

static void home_refuses_damage(void **state)
{
    struct fixture *f = *state;
    struct net_key key;
    char file[120];
    static const struct {
        const char *text;
        mode_t mode;
        const char *says;
    } rows[] = {
        {"", 0600, "is damaged"},
        {"00112233445566778899aabbccddeeff00112233445566778899aabbccddee\n", 0600, "is damaged"},
        {"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00", 0600, "is damaged"},
        {"x0112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n", 0600, "is damaged"},
        {"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n", 0600,
         "does not contain the leader's key"}, /* another key */
        {"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n", 0644, "chmod 600"},
    };
    use_home(f);
    struct net_key leader = leader_key(f);
    (void)snprintf(file, sizeof(file), ".ddrun/%s", file_of(f, &leader));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)write_file(f, file, rows[i].text, rows[i].mode);
        assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_HOME, tag_of(f, &leader), &f->err),
                         -EINVAL);
        if (strstr(f->err.text, rows[i].says) == NULL)
            fail_msg("'%s' does not say '%s'", f->err.text, rows[i].says);
    }
    char much[1000];
    memset(much, '0', sizeof(much) - 1);
    much[sizeof(much) - 1] = '\0';
    (void)write_file(f, file, much, 0600);
    assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_HOME, tag_of(f, &leader), &f->err),
                     -EINVAL);
    assert_non_null(strstr(f->err.text, "larger"));
    assert_int_equal(chmod(home_path(f, ""), 0770), 0);
    assert_refused(f, -ENOKEY, "other users can write to");
    assert_int_equal(net_key_accept(&key, &f->in, NET_KEY_HOME, tag_of(f, &leader), &f->err),
                     -EINVAL);
}

static size_t files_in(const char *path)
{
    size_t n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(d);
    return n;
}

/* Two daemons of one job may run at once, or a later run may begin before the previous one has
 * ended. */
static void home_takes_nothing_from_another_daemon_of_the_job(void **state)
{
    struct fixture *f = *state;
    struct net_key agent;
    use_home(f);
    struct net_key first = leader_key(f);
    struct net_key next = leader_key(f);
    assert_memory_not_equal(first.bytes, next.bytes, NET_KEY_LEN);
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_HOME, tag_of(f, &first), &f->err), 0);
    assert_memory_equal(first.bytes, agent.bytes, NET_KEY_LEN);
    net_key_cleanup(&first, &f->in);
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_HOME, tag_of(f, &next), &f->err), 0);
    assert_memory_equal(next.bytes, agent.bytes, NET_KEY_LEN);
    net_key_cleanup(&next, &f->in);
    assert_int_equal(files_in(home_path(f, "")), 0);
}

#define SOME_KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"

static void leave_file(struct fixture *f, const char *path, const char *text, int days)
{
    const char *full = write_file(f, path, text, 0600);
    const struct timespec then[2] = {{.tv_sec = time(NULL) - days * 86400L},
                                     {.tv_sec = time(NULL) - days * 86400L}};
    assert_int_equal(utimensat(AT_FDCWD, full, then, 0), 0);
}

/* Write the key file of another process. boot: the boot id of its machine; NULL: this machine. */
static void leave_key(struct fixture *f, const char *name, const char *boot, long pid, int days)
{
    char text[300];
    char mine[40] = "";
    char space[40] = "";
    char path[80];
    DD_AUTO(buf) struct dd_buf id = DD_BUF_INIT(100);
    assert_int_equal(dd_read_file("/proc/sys/kernel/random/boot_id", &id, NULL), 0);
    (void)snprintf(mine, sizeof(mine), "%.36s", dd_buf_str(&id));
    assert_true(readlink("/proc/self/ns/pid", space, sizeof(space) - 1) > 0);
    (void)snprintf(text, sizeof(text), "%s%s %s %ld 1\n", SOME_KEY, boot != NULL ? boot : mine,
                   space, pid);
    (void)snprintf(path, sizeof(path), ".ddrun/%s", name);
    leave_file(f, path, text, days);
}

static void home_is_swept_of_what_the_dead_left(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name, *boot;
        int days;
        bool stays;
    } rows[] = {
        {"dead.0011223344556677.key", NULL, 0, false}, /* the process started at another time */
        {"other.0011223344556677.key", "another-machine", 29, true},
        {"old.0011223344556677.key", "another-machine", 31, false},
        {"my-own.key", NULL, 400, true},                /* not a key file of ddrun */
        {"user.charges", "another-machine", 400, true}, /* not a file of ddrun */
        {".new-0011", NULL, 0, true},
        {".new-2233", NULL, 2, false},
    };
    struct stat st;
    use_home(f);
    struct net_key before = leader_key(f); /* key of a live process: must stay */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        leave_key(f, rows[i].name, rows[i].boot, (long)getpid(), rows[i].days);
    (void)write_file(f, ".ddrun/user.0011223344556677.key", "what a user keeps here\n", 0600);
    leave_file(f, ".ddrun/slurm.c.7.0.charges", "ddrun-charges 1 0 slurm.c.7.0\n", 29);
    leave_file(f, ".ddrun/slurm.c.6.0.charges", "ddrun-charges 1 0 slurm.c.6.0\n", 31);
    struct net_key next = leader_key(f);
    assert_int_equal(stat(home_path(f, "slurm.c.7.0.charges"), &st), 0);
    assert_int_equal(stat(home_path(f, "slurm.c.6.0.charges"), &st), -1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if ((stat(home_path(f, rows[i].name), &st) == 0) != rows[i].stays)
            fail_msg("%s %s", rows[i].name, rows[i].stays ? "is gone" : "is still there");
    assert_int_equal(stat(home_path(f, "user.0011223344556677.key"), &st), 0);
    assert_int_equal(stat(home_path(f, file_of(f, &before)), &st), 0);
    assert_int_equal(stat(home_path(f, file_of(f, &next)), &st), 0);
}

/* A leader on another machine with the same process id may be writing its draft at this moment. */
static void home_takes_no_draft_of_another_host(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    char name[40];
    use_home(f);
    struct net_key mine = leader_key(f);
    (void)snprintf(name, sizeof(name), ".ddrun/.new-%ld", (long)getpid());
    (void)write_file(f, name, "another job's", 0600);
    struct net_key again = leader_key(f);
    assert_memory_not_equal(mine.bytes, again.bytes, NET_KEY_LEN);
    (void)snprintf(name, sizeof(name), ".new-%ld", (long)getpid());
    assert_int_equal(stat(home_path(f, name), &st), 0);
}

static void home_gives_every_job_a_file_of_its_own(void **state)
{
    struct fixture *f = *state;
    char longest[256];
    char other[256];
    memset(longest, '/', 255);
    longest[255] = '\0';
    memcpy(other, longest, sizeof(other));
    other[254] = '.';
    const char *const ids[] = {"../../etc/passwd", "..", ".", "a/b", "a%2Fb", "a b", longest, other,
                               "12[3].pbs"};
    use_home(f);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        f->in.job_id = ids[i];
        (void)leader_key(f);
        assert_int_equal(files_in(home_path(f, "")), i + 1);
    }
    assert_int_equal(files_in(f->dir), 1); /* only .ddrun */
}

/* ---- MUNGE ---- */

#if HAVE_MUNGE

/* Run fn() in a process of another uid and return the text that it writes. */
static void as_nobody(const struct net_key_input *in, void (*fn)(const struct net_key_input *, int),
                      char *out, size_t size)
{
    int pipes[2];
    size_t len = 0;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (setgid(NOBODY) == 0 && setuid(NOBODY) == 0)
            fn(in, pipes[1]);
        _exit(0);
    }
    (void)close(pipes[1]);
    for (ssize_t n; (n = read(pipes[0], out + len, size - 1 - len)) > 0;)
        len += (size_t)n;
    out[len] = '\0';
    (void)close(pipes[0]);
    (void)waitpid(pid, NULL, 0);
}

static void encode_for_all(const struct net_key_input *in, int fd)
{
    unsigned char payload[12 + 10 + NET_KEY_LEN] = "ddrun-key-1";
    char *cred = NULL;
    munge_ctx_t ctx = munge_ctx_create();
    memcpy(payload + 12, "slurm-1.0", 10);
    (void)munge_ctx_set(ctx, MUNGE_OPT_SOCKET, in->munge_socket);
    if (munge_encode(&cred, ctx, payload, sizeof(payload)) == EMUNGE_SUCCESS)
        (void)dd_write_full(fd, cred, strlen(cred));
}

static void decode_and_tell(const struct net_key_input *in, int fd)
{
    struct net_key key;
    struct net_key_input own = *in;
    struct dd_err err = {.text = "accepted"};
    own.psk = NULL;
    if (net_key_accept(&key, &own, NET_KEY_MUNGE, in->psk, &err) != -EACCES)
        (void)dd_write_full(fd, "not refused: ", 13);
    (void)dd_write_full(fd, err.text, strlen(err.text));
}

static void munge_hands_the_key_to_this_uid_only(void **state)
{
    struct fixture *f = *state;
    struct munged m;
    struct net_key agent;
    char text[4096];
    DD_AUTO(free) char *cred = NULL;
    DD_AUTO(free) char *again = NULL;
    const char *why = munged_start(&m);
    if (why[0] != '\0') {
        munged_stop(&m);
        print_message("skipped: %s\n", why);
        skip();
    }
    f->in.munge_socket = m.socket;
    struct net_key leader = leader_key(f);
    assert_int_equal(leader.method, NET_KEY_MUNGE);
    assert_int_equal(net_key_credential(&cred, &leader, &f->in, &f->err), 0);
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_MUNGE, cred, &f->err), 0);
    assert_memory_equal(leader.bytes, agent.bytes, NET_KEY_LEN);
    agent = (struct net_key){0};
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_MUNGE, cred, &f->err),
                     0); /* a second agent of the machine */
    assert_memory_equal(leader.bytes, agent.bytes, NET_KEY_LEN);

    assert_int_equal(net_key_credential(&again, &leader, &f->in, &f->err), 0);
    f->in.job_id = "slurm-2.0";
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_MUNGE, again, &f->err), -EACCES);
    assert_non_null(strstr(f->err.text, "was not made for this job"));
    f->in.job_id = "slurm-1.0";

    if (geteuid() == 0) {
        as_nobody(&f->in, encode_for_all, text, sizeof(text));
        assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_MUNGE, text, &f->err), -EACCES);
        assert_non_null(strstr(f->err.text, "uid 65534, not yours (uid 0)"));
        DD_AUTO(free) char *third = NULL;
        assert_int_equal(net_key_credential(&third, &leader, &f->in, &f->err), 0);
        f->in.psk = third; /* passes the credential to the child */
        as_nobody(&f->in, decode_and_tell, text, sizeof(text));
        assert_non_null(strstr(text, "nauthorized"));
        assert_null(strstr(text, "not refused"));
    }
    munged_stop(&m);
}

static void munge_of_another_cluster_is_refused(void **state)
{
    struct fixture *f = *state;
    struct munged here;
    struct munged there;
    struct net_key agent;
    DD_AUTO(free) char *cred = NULL;
    const char *why = munged_start(&here);
    const char *why2 = munged_start(&there);
    if (why[0] != '\0' || why2[0] != '\0') {
        munged_stop(&here);
        munged_stop(&there);
        print_message("skipped: %s\n", why);
        skip();
    }
    f->in.munge_socket = there.socket;
    struct net_key leader = leader_key(f);
    assert_int_equal(net_key_credential(&cred, &leader, &f->in, &f->err), 0);
    f->in.munge_socket = here.socket;
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_MUNGE, cred, &f->err), -EIO);
    munged_stop(&here);
    munged_stop(&there);
    assert_int_equal(net_key_accept(&agent, &f->in, NET_KEY_MUNGE, cred, &f->err), -ENOENT);
}

#endif

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(key_file_is_refused_when_it_proves_nothing),
        T(key_file_is_refused_when_it_is_no_file_of_mine),
        T(key_file_gives_both_sides_the_same_key),
        T(key_in_the_environment_must_be_hex_and_is_not_shown),
        T(sources_win_in_their_order),
        T(nothing_in_common_names_the_choices),
        T(a_cookie_is_a_key_only_on_demand),
        T(secrets_that_are_easy_to_guess_are_refused),
        T(random_secrets_are_taken),
        T(runs_of_one_job_id_have_different_session_keys),
        T(seeds_come_from_what_nodes_have_before_they_meet),
        T(agent_takes_only_what_it_can_check),
        T(agent_with_a_shared_key_takes_no_other),
        T(home_hands_the_key_on_and_is_cleaned_up),
        T(home_follows_no_link_and_opens_no_other_file),
        T(home_takes_nothing_from_another_daemon_of_the_job),
        T(home_is_swept_of_what_the_dead_left),
        T(home_takes_no_draft_of_another_host),
        T(home_refuses_damage),
        T(home_gives_every_job_a_file_of_its_own),
#if HAVE_MUNGE
        T(munge_hands_the_key_to_this_uid_only),
        T(munge_of_another_cluster_is_refused),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
