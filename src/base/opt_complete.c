/* Completions for bash, zsh and fish. After SCRIPT, all of them complete file names. */
#include "base/opt_rows.h"

#include <string.h>

enum value_sort { VALUE_NONE, VALUE_ANY, VALUE_FILE, VALUE_DIR, VALUE_CHOICE };

static enum value_sort value_sort(const struct opt_row *row)
{
    if (row->kind == OPT_FLAG)
        return VALUE_NONE;
    if (row->choices != NULL)
        return VALUE_CHOICE;
    if (strstr(row->metavar, "DIR") != NULL)
        return VALUE_DIR;
    return strstr(row->metavar, "FILE") != NULL || strstr(row->metavar, "PATH") != NULL ? VALUE_FILE
                                                                                        : VALUE_ANY;
}

static int spaced(struct dd_buf *out, const char *list)
{
    const char *piece;
    size_t len;
    int rc = 0;
    for (const char *at = list; rc == 0 && (piece = opt_next_piece(&at, &len)) != NULL;)
        rc = dd_buf_printf(out, "%s%.*s", piece == list ? "" : " ", (int)len, piece);
    return rc;
}

/* Append the options that require a value, or with `optional` those whose value may be omitted, as
 * a pattern: "--tee|-t|--redirects|-r". */
static int bash_pattern(const struct opt_table *t, bool optional, struct dd_buf *out)
{
    const struct opt_row *row;
    int rc = 0;
    const size_t start = out->len;
    for (size_t i = 0; rc == 0 && (row = opt_row_at(t, i)) != NULL; i++) {
        if (row->kind == OPT_FLAG || row->hidden || (row->implied != NULL) != optional)
            continue;
        rc = dd_buf_printf(out, "%s--%s", out->len > start ? "|" : "", row->name);
        if (rc == 0 && row->letter != 0)
            rc = dd_buf_printf(out, "|-%c", row->letter);
    }
    return rc == 0 && out->len == start ? dd_buf_puts(out, "''") : rc;
}

static int bash_values(const struct opt_table *t, struct dd_buf *out)
{
    static const char *const how[] = {
        [VALUE_FILE] = "-f",
        [VALUE_DIR] = "-d",
        [VALUE_CHOICE] = "-W '",
    };
    const struct opt_row *row;
    int rc = 0;
    for (size_t i = 0; rc == 0 && (row = opt_row_at(t, i)) != NULL; i++) {
        enum value_sort sort = value_sort(row);
        if (row->hidden || sort == VALUE_NONE || sort == VALUE_ANY)
            continue;
        rc = dd_buf_printf(out, "        --%s", row->name);
        if (rc == 0 && row->letter != 0)
            rc = dd_buf_printf(out, "|-%c", row->letter);
        if (rc == 0)
            rc = dd_buf_printf(out, ") mapfile -t COMPREPLY < <(compgen %s", how[sort]);
        if (rc == 0 && sort == VALUE_CHOICE)
            rc = spaced(out, row->choices);
        if (rc == 0)
            rc = dd_buf_puts(out,
                             sort == VALUE_CHOICE ? "' -- \"$cur\") ;;\n" : " -- \"$cur\") ;;\n");
    }
    return rc;
}

static int bash_names(const struct opt_table *t, struct dd_buf *out)
{
    const struct opt_row *row;
    int rc = 0;
    for (size_t i = 0; rc == 0 && (row = opt_row_at(t, i)) != NULL; i++)
        if (!row->hidden)
            rc = dd_buf_printf(out, "%s--%s%s", i > 0 ? " " : "", row->name,
                               row->kind != OPT_FLAG && row->implied == NULL ? "=" : "");
    return rc;
}

/* Append a function with this name that completes from word `first` on. bash splits words at "=",
 * so "--tee=3" arrives as three words. */
static int bash_function(const struct opt_table *t, const char *name, int first, struct dd_buf *out)
{
    int rc = dd_buf_printf(out,
                           "%s()\n{\n"
                           "    local cur=${COMP_WORDS[COMP_CWORD]} word want='' i\n"
                           "    COMPREPLY=()\n"
                           "    for ((i = %d; i < COMP_CWORD; i++)); do\n"
                           "        word=${COMP_WORDS[i]}\n"
                           "        [[ $word == \"=\" ]] && continue\n"
                           "        if [[ -n $want ]]; then\n"
                           "            want=''\n"
                           "            continue\n"
                           "        fi\n"
                           "        case $word in\n        ",
                           name, first);
    if (rc == 0)
        rc = bash_pattern(t, false, out);
    if (rc == 0)
        rc = dd_buf_puts(out, ") want=$word ;;\n        ");
    if (rc == 0)
        rc = bash_pattern(t, true, out);
    if (rc == 0)
        rc = dd_buf_puts(out, ") [[ ${COMP_WORDS[i + 1]} == \"=\" ]] && want=$word ;;\n"
                              "        -?*) ;;\n"
                              "        *)\n"
                              "            compopt -o filenames 2>/dev/null\n"
                              "            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
                              "            return\n"
                              "            ;;\n"
                              "        esac\n"
                              "    done\n"
                              "    [[ $cur == \"=\" ]] && cur=''\n"
                              "    if [[ -n $want ]]; then\n"
                              "        case $want in\n");
    if (rc == 0)
        rc = bash_values(t, out);
    if (rc == 0)
        rc = dd_buf_puts(out, "        esac\n"
                              "    elif [[ $cur == -* ]]; then\n"
                              "        mapfile -t COMPREPLY < <(compgen -W '");
    if (rc == 0)
        rc = bash_names(t, out);
    if (rc < 0)
        return rc;
    return dd_buf_puts(out,
                       "' -- \"$cur\")\n"
                       "        [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
                       "    else\n"
                       "        compopt -o filenames 2>/dev/null\n"
                       "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
                       "    fi\n}\n");
}

/* Append the completion of a program with commands: the first word is a command or an option of the
 * program; the other words belong to the command. */
static int bash_commands(const struct opt_table *t, struct dd_buf *out)
{
    char name[80];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < t->n_commands; i++) {
        (void)snprintf(name, sizeof(name), "_%s_%s", t->program, t->commands[i].name);
        rc = bash_function(t->commands[i].table, name, 2, out);
    }
    if (rc == 0)
        rc = dd_buf_printf(out,
                           "_%s()\n{\n    COMPREPLY=()\n    case $COMP_CWORD:${COMP_WORDS[1]} in\n"
                           "    1:*) mapfile -t COMPREPLY < <(compgen -W '",
                           t->program);
    for (size_t i = 0; rc == 0 && i < t->n_commands; i++)
        rc = dd_buf_printf(out, "%s ", t->commands[i].name);
    if (rc == 0)
        rc = bash_names(t, out);
    if (rc == 0)
        rc = dd_buf_puts(out, "' -- \"${COMP_WORDS[1]}\") ;;\n");
    for (size_t i = 0; rc == 0 && i < t->n_commands; i++)
        rc = dd_buf_printf(out, "    *:%s) _%s_%s ;;\n", t->commands[i].name, t->program,
                           t->commands[i].name);
    return rc == 0 ? dd_buf_puts(out, "    esac\n}\n") : rc;
}

int opt_dump_bash(const struct opt_table *t, struct dd_buf *out)
{
    char name[80];
    (void)snprintf(name, sizeof(name), "_%s", t->program);
    int rc = dd_buf_printf(out, "# bash completion for %s\n", t->program);
    if (rc == 0)
        rc = t->n_commands > 0 ? bash_commands(t, out) : bash_function(t, name, 1, out);
    return rc == 0 ? dd_buf_printf(out, "complete -F %s %s\n", name, t->program) : rc;
}

/* Append text for '...[here]...' in a zsh _arguments specification. */
static int zsh_text(struct dd_buf *out, const char *s)
{
    int rc = 0;
    for (; rc == 0 && *s != '\0'; s++)
        rc = *s == '\''                    ? dd_buf_puts(out, "'\\''")
             : strchr("[]:\\", *s) != NULL ? dd_buf_printf(out, "\\%c", *s)
                                           : dd_buf_append(out, s, 1);
    return rc;
}

static int zsh_row(struct dd_buf *out, const struct opt_row *row)
{
    static const char *const how[] = {
        [VALUE_NONE] = "",          [VALUE_ANY] = ": ",    [VALUE_FILE] = ":_files",
        [VALUE_DIR] = ":_files -/", [VALUE_CHOICE] = ":(",
    };
    enum value_sort sort = value_sort(row);
    const char *glue = sort == VALUE_NONE ? "" : row->implied != NULL ? "=-" : "=";
    const char *many = row->kind == OPT_REPEATED ? "*" : "";
    int rc = dd_buf_puts(out, "    '");
    if (rc == 0 && row->letter == 0)
        rc = dd_buf_printf(out, "%s--%s%s[", many, row->name, glue);
    else if (rc == 0 && row->kind == OPT_REPEATED)
        rc = dd_buf_printf(out, "*'{-%c+,--%s%s}'[", row->letter, row->name, glue);
    else if (rc == 0)
        rc = dd_buf_printf(out, "(-%c --%s)'{-%c%s,--%s%s}'[", row->letter, row->name, row->letter,
                           sort == VALUE_NONE ? "" : "+", row->name, glue);
    if (rc == 0)
        rc = zsh_text(out, row->help);
    if (rc == 0 && sort != VALUE_NONE)
        rc = dd_buf_puts(out, row->implied != NULL ? "]::" : "]:");
    if (rc == 0 && sort != VALUE_NONE)
        rc = zsh_text(out, row->metavar);
    if (rc == 0)
        rc = dd_buf_puts(out, sort == VALUE_NONE ? "]" : how[sort]);
    if (rc == 0 && sort == VALUE_CHOICE)
        rc = spaced(out, row->choices);
    return rc == 0 ? dd_buf_puts(out, sort == VALUE_CHOICE ? ")' \\\n" : "' \\\n") : rc;
}

static int zsh_arguments(const struct opt_table *t, const char *operands, struct dd_buf *out)
{
    const struct opt_row *row;
    int rc = dd_buf_puts(out, "_arguments -s -S -A '-*' \\\n");
    for (size_t i = 0; rc == 0 && (row = opt_row_at(t, i)) != NULL; i++)
        if (!row->hidden)
            rc = zsh_row(out, row);
    return rc == 0 ? dd_buf_puts(out, operands) : rc;
}

static int zsh_commands(const struct opt_table *t, struct dd_buf *out)
{
    int rc = dd_buf_puts(out, "if ((CURRENT > 2)); then\n"
                              "shift words\n((CURRENT--))\ncase $words[1] in\n");
    for (size_t i = 0; rc == 0 && i < t->n_commands; i++) {
        rc = dd_buf_printf(out, "%s)\n", t->commands[i].name);
        if (rc == 0)
            rc = zsh_arguments(t->commands[i].table, "    '*::argument: '\n;;\n", out);
    }
    if (rc == 0)
        rc = dd_buf_puts(out, "esac\nelse\nlocal -a commands=(\n");
    for (size_t i = 0; rc == 0 && i < t->n_commands; i++) {
        rc = dd_buf_printf(out, "    '%s:", t->commands[i].name);
        if (rc == 0)
            rc = zsh_text(out, t->commands[i].help);
        if (rc == 0)
            rc = dd_buf_puts(out, "'\n");
    }
    if (rc == 0)
        rc = dd_buf_puts(out, ")\n");
    return rc == 0 ? zsh_arguments(t, "    '1: :{_describe command commands}'\nfi\n", out) : rc;
}

int opt_dump_zsh(const struct opt_table *t, struct dd_buf *out)
{
    int rc = dd_buf_printf(out, "#compdef %s\n", t->program);
    if (rc < 0 || t->n_commands > 0)
        return rc < 0 ? rc : zsh_commands(t, out);
    return zsh_arguments(t, "    '1:script:_files' \\\n    '*::argument:_files'\n", out);
}

static int fish_text(struct dd_buf *out, const char *s)
{
    int rc = dd_buf_puts(out, "'");
    for (; rc == 0 && *s != '\0'; s++)
        rc = *s == '\'' || *s == '\\' ? dd_buf_printf(out, "\\%c", *s) : dd_buf_append(out, s, 1);
    return rc == 0 ? dd_buf_puts(out, "'") : rc;
}

/* start: "complete -c PROGRAM" with the condition for the option. */
static int fish_row(struct dd_buf *out, const char *start, const struct opt_row *row)
{
    static const char *const how[] = {
        [VALUE_NONE] = "",           [VALUE_ANY] = " -x",
        [VALUE_FILE] = " -r -F",     [VALUE_DIR] = " -x -a '(__fish_complete_directories)'",
        [VALUE_CHOICE] = " -x -a '",
    };
    enum value_sort sort = row->implied != NULL ? VALUE_NONE : value_sort(row);
    int rc = dd_buf_printf(out, "%s -l %s", start, row->name);
    if (rc == 0 && row->letter != 0)
        rc = dd_buf_printf(out, " -s %c", row->letter);
    if (rc == 0)
        rc = dd_buf_puts(out, how[sort]);
    if (rc == 0 && sort == VALUE_CHOICE)
        rc = spaced(out, row->choices);
    if (rc == 0)
        rc = dd_buf_puts(out, sort == VALUE_CHOICE ? "' -d " : " -d ");
    if (rc == 0)
        rc = fish_text(out, row->help);
    return rc == 0 ? dd_buf_puts(out, "\n") : rc;
}

static int fish_rows(const struct opt_table *t, const char *start, struct dd_buf *out)
{
    const struct opt_row *row;
    int rc = 0;
    for (size_t i = 0; rc == 0 && (row = opt_row_at(t, i)) != NULL; i++)
        if (!row->hidden)
            rc = fish_row(out, start, row);
    return rc;
}

static int fish_command(const char *program, const struct opt_command *c, struct dd_buf *out)
{
    char start[160];
    int rc = dd_buf_printf(out, "complete -c %s -n __fish_use_subcommand -f -a %s -d ", program,
                           c->name);
    if (rc == 0)
        rc = fish_text(out, c->help);
    if (rc == 0)
        rc = dd_buf_puts(out, "\n");
    (void)snprintf(start, sizeof(start), "complete -c %s -n '__fish_seen_subcommand_from %s' -f",
                   program, c->name);
    return rc == 0 ? fish_rows(c->table, start, out) : rc;
}

int opt_dump_fish(const struct opt_table *t, struct dd_buf *out)
{
    char start[160];
    int rc = dd_buf_printf(out, "# fish completion for %s\n", t->program);
    for (size_t i = 0; rc == 0 && i < t->n_commands; i++)
        rc = fish_command(t->program, &t->commands[i], out);
    (void)snprintf(start, sizeof(start), "complete -c %s%s", t->program,
                   t->n_commands > 0 ? " -n __fish_use_subcommand" : "");
    return rc == 0 ? fish_rows(t, start, out) : rc;
}
