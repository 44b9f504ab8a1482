/* ddrund as a program of its own: a standing store. The daemon of a job is forked by its agent. */
#include "cmd/ddrund_main.h"

int main(int argc, char **argv)
{
    return ddrund_main(argc, argv);
}
