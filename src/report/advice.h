/* One line of advice for known kinds of failure. Pure. */
#ifndef DD_REPORT_ADVICE_H
#define DD_REPORT_ADVICE_H

struct report_exit;

/* Return a static string; NULL: the failure is not known. */
const char *report_advice(const struct report_exit *e);

#endif
