#include "daemon/charges_follow.h"

#include "base/auto.h"
#include "base/io.h"
#include "rdzv/charges.h"

/* Send the charges. Ignore a failure: the next text contains the same charges. */
static void charges_follow_send(const struct charges_follow *f)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(CHARGES_BYTES);
    if (rdzv_charges_format(f->machine, dd_now_ns(), &text) == 0 && text.len > 0)
        (void)session_answer(f->to, f->id, (char *)text.data, text.len, false);
}

static void charges_follow_on_event(void *arg, const struct journal_event *e)
{
    const struct charges_follow *f = arg;
    if (f->to != NULL && (e->kind == JOURNAL_CHARGE || e->kind == JOURNAL_ROUND))
        charges_follow_send(f);
}

void charges_follow_init(struct charges_follow *f, struct journal *j, const struct rdzv *machine)
{
    *f = (struct charges_follow){.machine = machine};
    f->subscriber = (struct journal_subscriber){.on_event = charges_follow_on_event, .arg = f};
    journal_subscribe(j, &f->subscriber);
}

void charges_follow_start(struct charges_follow *f, struct session *s, int64_t id)
{
    f->to = s;
    f->id = id;
    charges_follow_send(f);
}

void charges_follow_forget(struct charges_follow *f, const struct session *s)
{
    if (f->to == s)
        f->to = NULL;
}
