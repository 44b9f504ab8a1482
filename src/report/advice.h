/* What to do about a failure, in one line, where that is known. Pure. */
#ifndef DD_REPORT_ADVICE_H
#define DD_REPORT_ADVICE_H

struct report_exit;

/* Lent for good; NULL: nothing is known. */
const char *report_advice(const struct report_exit *e);

#endif
