/* The files of the page of 'ddctl web', from src/cmd/web. */
#ifndef DD_CMD_DDCTL_WEB_FILES_H
#define DD_CMD_DDCTL_WEB_FILES_H

#include <stddef.h>

struct web_file {
    const char *type; /* Content-Type */
    const unsigned char *data;
    size_t len;
};

extern const struct web_file web_file_html, web_file_js, web_file_css;

#endif
