#include "cmd/launcher_program.h"

#include <stddef.h>
#include <string.h>

/* Commands that launch; those with a second word launch only with it. */
static const char *const commands[][2] = {
    {"torchrun", NULL},  {"accelerate", "launch"}, {"fabric", "run"},
    {"deepspeed", NULL}, {"horovodrun", NULL},     {"mpirun", NULL},
    {"mpiexec", NULL},   {"srun", NULL},           {"accelerate-launch", NULL},
};

static const char *const modules[] = {
    "torch.distributed.run",     "torch.distributed.launch", "accelerate.commands.launch",
    "deepspeed.launcher.runner", "horovod.runner.launch",
};

static int words_of_module(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof(modules) / sizeof(modules[0]); i++)
        if (strcmp(name, modules[i]) == 0)
            return 1;
    return 0;
}

static int words_of_command(const char *name, const char *second)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        const char *const *c = commands[i];
        if (strcmp(name, c[0]) != 0)
            continue;
        if (c[1] == NULL)
            return 1;
        return second != NULL && strcmp(second, c[1]) == 0 ? 2 : 0;
    }
    return 0;
}

int launcher_program_words(char *const *program, bool module)
{
    const char *slash = strrchr(program[0], '/');
    const char *name = slash != NULL ? slash + 1 : program[0];
    int i = 1;
    if (module)
        return words_of_module(program[0]);
    if (strncmp(name, "python", 6) != 0)
        return words_of_command(name, program[1]);
    while (program[i] != NULL && program[i][0] == '-' && strcmp(program[i], "-m") != 0)
        i++; /* -u, -O, -Xfrozen_modules=off */
    if (program[i] == NULL || strcmp(program[i], "-m") != 0)
        return 0;
    return words_of_module(program[i + 1]) > 0 ? i + 2 : 0;
}
