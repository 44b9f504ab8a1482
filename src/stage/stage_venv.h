/* Finds the interpreter of a virtual environment, which lies outside of the environment. Pure. */
#ifndef DD_STAGE_STAGE_VENV_H
#define DD_STAGE_STAGE_VENV_H

#include <stddef.h>

/* Return the value of "home" in the text of a pyvenv.cfg: the directory of the interpreter. NULL:
 * there is none. */
const char *stage_venv_home(const char *pyvenv_cfg, size_t *len);

/* Find the directory of an interpreter that uv has installed, from the text of the environment's
 * pyvenv.cfg. Such a directory has one interpreter and its standard library; others ("/usr", a
 * conda environment) may contain much more and are not returned.
 * 1 and *ret, which the caller frees; 0: not installed by uv; -ENOMEM.
 * Src: pyvenv.cfg of uv 0.13.9; https://docs.astral.sh/uv/concepts/python-versions/ */
int stage_venv_interpreter(char **ret, const char *pyvenv_cfg);

#endif
