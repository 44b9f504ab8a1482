/* Checked conversion of text from users and other programs to numbers. */
#ifndef DD_BASE_NUM_H
#define DD_BASE_NUM_H

#include <stdint.h>

/* Parse decimal digits, without sign or blanks. 0, -EINVAL (not a number) or -ERANGE. */
int dd_num_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret);
int dd_num_int(const char *s, int min, int max, int *ret); /* with an optional minus sign */
/* Parse digits at *at as dd_num_u64() does, up to the character `end` (not 0), and move *at behind
 * `end`. A failure leaves *at unchanged. */
int dd_num_take(const char **at, char end, uint64_t min, uint64_t max, uint64_t *ret);

/* Parse "10us", "250ms", "5s", "10m", "2h", "1d" or plain seconds ("600", "0.1") to nanoseconds. 0,
 * -EINVAL or -ERANGE. */
int dd_num_duration_ns(const char *s, uint64_t *ret_ns);
/* Write a duration for the user: "45 s", "4 min 30 s", "1 h 5 min". */
enum { DD_DURATION_TEXT = 48 };
void dd_num_duration_text(char out[DD_DURATION_TEXT], uint64_t seconds);
/* Parse "64K", "8M", "1G" (powers of 1024) or plain bytes. 0, -EINVAL or -ERANGE. */
int dd_num_bytes(const char *s, uint64_t *ret);

#endif
