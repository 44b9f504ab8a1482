#include "alloc/task.h"

#include "base/num.h"
#include "base/strv.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>

/* All variables of a row must be set, except local_size if the row has none. The batch script has
 * srun's variables, too, but not SLURM_STEP_ID. Src: srun(1), Open MPI 4.1, MPICH 4.0 and PALS,
 * their documents. */
static const struct row {
    const char *launcher;
    const char *mark; /* variable that must be set, too; NULL: none */
    const char *rank, *size, *local_rank, *local_size;
} rows[] = {
    {"srun", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL},
    {"PALS", NULL, "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"},
    {"mpirun", NULL, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpiexec", NULL, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"mpiexec", NULL, "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
};

static int refuse_numbers(const struct row *r, const struct alloc_task *t, struct dd_err *err)
{
    char last[80] = "";
    if (r->local_size != NULL)
        (void)snprintf(last, sizeof(last), ", %s=%d", r->local_size, t->local_size);
    return dd_err_set(err, -EINVAL,
                      "%s=%d, %s=%d, %s=%d%s contradict each other; they may be stale", r->rank,
                      t->rank, r->size, t->size, r->local_rank, t->local_rank, last);
}

/* Return 1 if all variables of the row are set, 0 if not, -EINVAL if they are invalid. */
static int read_row(struct alloc_task *ret, const struct row *r, char *const *env,
                    struct dd_err *err)
{
    struct alloc_task t = {.launcher = r->launcher};
    const struct {
        const char *name;
        int min;
        int *value;
    } numbers[] = {{r->rank, 0, &t.rank},
                   {r->size, 1, &t.size},
                   {r->local_rank, 0, &t.local_rank},
                   {r->local_size, 1, &t.local_size}};
    const size_t n = sizeof(numbers) / sizeof(numbers[0]);
    if (r->mark != NULL && dd_env_get_nonempty(env, r->mark) == NULL)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (numbers[i].name != NULL && dd_env_get_nonempty(env, numbers[i].name) == NULL)
            return 0;
    for (size_t i = 0; i < n; i++) {
        const char *text = numbers[i].name != NULL ? dd_env_get(env, numbers[i].name) : NULL;
        if (text != NULL && dd_num_int(text, numbers[i].min, INT_MAX, numbers[i].value) < 0)
            return dd_err_set(err, -EINVAL, "%s=%.80s is not a number from %d to %d",
                              numbers[i].name, text, numbers[i].min, INT_MAX);
    }
    if (t.rank >= t.size || t.local_rank > t.rank || t.local_size > t.size ||
        (t.local_size > 0 && t.local_rank >= t.local_size))
        return refuse_numbers(r, &t, err);
    *ret = t;
    return 1;
}

int alloc_task_find(struct alloc_task *ret, char *const *env, struct dd_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == 0; i++)
        rc = read_row(ret, &rows[i], env, err);
    return rc;
}
