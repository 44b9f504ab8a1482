/* Errors: a function returns 0 or a count, or a negative errno and one sentence for a person.
 *
 * The sentence is written once, where the cause is known; callers may only put a place in front
 * of it. A NULL err is allowed everywhere.
 */
#ifndef DD_BASE_ERR_H
#define DD_BASE_ERR_H

struct dd_err {
    int rc;         /* what the failing function returned */
    char text[600]; /* one sentence, then a line for each tip; no newline at the end */
};

/* Stores the sentence and returns rc, so that `return dd_err_set(err, -EINVAL, ...)` reads well.
 * %m in fmt prints errno. Text that does not fit is cut. */
int dd_err_set(struct dd_err *err, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends "tip: ..." as a line of its own and returns rc, so that
 * `return dd_err_tip(err, dd_err_set(err, -EINVAL, ...), ...)` reads well. */
int dd_err_tip(struct dd_err *err, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "place: " in front of the sentence and returns rc. */
int dd_err_where(struct dd_err *err, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
