/* Errors: a function returns 0 or a count on success, else a negative errno and an error message.
 *
 * The message is written once, by the function that detects the failure; callers may only
 * prefix it with a location and append tips. A NULL err is allowed everywhere. */
#ifndef DD_BASE_ERR_H
#define DD_BASE_ERR_H

struct dd_err {
    int rc;         /* return value of the failed function */
    char text[600]; /* the message, then one line per tip; no newline at the end */
};

/* Set the message and return rc, for `return dd_err_set(err, -EINVAL, ...)`. %m in fmt prints
 * errno. Text that does not fit is truncated. */
int dd_err_set(struct dd_err *err, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Append "tip: ..." on a line of its own and return rc, for `return dd_err_tip(err, dd_err_set(err,
 * -EINVAL, ...), ...)`. */
int dd_err_tip(struct dd_err *err, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Prefix the message with "place: " and return rc. */
int dd_err_where(struct dd_err *err, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
