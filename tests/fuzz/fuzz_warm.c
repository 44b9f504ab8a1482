/* worker: any bytes as a message of the warm interpreter, and any text as Python's command line. */
#include "base/auto.h"
#include "worker/warm_command.h"
#include "worker/warm_msg.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct warm_msg m;
    struct warm_command c;
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(strv) struct dd_strv argv = {0};
    if (warm_msg_decode(&m, data, size) == 0 && strlen(m.text) != size - 9)
        abort();
    if (text == NULL || dd_strv_split(&argv, text, " \n") < 0)
        return 0;
    if (warm_command_parse(&c, argv.v, NULL) == 0 &&
        (c.target == NULL || c.arguments > argv.n || c.arguments < 2))
        abort();
    warm_command_done(&c);
    return 0;
}
