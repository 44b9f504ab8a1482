#include "cmd/ddctl_web_files.h"

/* Makemodule.am writes each file as a list of numbers. */
static const unsigned char html[] = {
#include "src/cmd/web/page.html.inc"
};
static const unsigned char js[] = {
#include "src/cmd/web/web.js.inc"
};
static const unsigned char css[] = {
#include "src/cmd/web/web.css.inc"
};

const struct web_file web_file_html = {"text/html; charset=utf-8", html, sizeof(html)};
const struct web_file web_file_js = {"text/javascript; charset=utf-8", js, sizeof(js)};
const struct web_file web_file_css = {"text/css; charset=utf-8", css, sizeof(css)};
