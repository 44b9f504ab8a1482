/* Reads the frames in the text of a stack (report/stacks.h). Pure. */
#ifndef DD_REPORT_STACK_FRAMES_H
#define DD_REPORT_STACK_FRAMES_H

#include "base/buf.h"

#include <stdbool.h>

#define STACK_FRAME_NATIVE "native:"

/* A frame. Its texts point into the text of the stack, and are not terminated. */
struct stack_frame {
    const char *function, *file, *line;
    int nfunction, nfile, nline; /* bytes */
};

/* Read the frame at *at, and advance. False if no frame is left. */
bool stack_frame_next(const char **at, struct stack_frame *ret);
bool stack_frame_is_function(const struct stack_frame *f, const char *name);
/* True if the path of the frame's file contains this part, such as "/torch/distributed/". */
bool stack_frame_is_in(const struct stack_frame *f, const char *part);
/* True for a module that comes with Python. */
bool stack_frame_is_python(const struct stack_frame *f);
/* True for a native frame below those of Python: its file begins with STACK_FRAME_NATIVE. */
bool stack_frame_is_native(const struct stack_frame *f);
/* True for a file of Python, PyTorch or another library that waits on behalf of a program. */
bool stack_frame_is_internal(const struct stack_frame *f);
/* Append "train.py:81", or "libmpi.so.40" if the line is unknown. 0, -ENOMEM or -EMSGSIZE. */
int stack_frame_put_place(const struct stack_frame *f, struct dd_buf *out);
/* Find the innermost frame of the user's code, other than a native one, and the frame of the
 * library function that this code calls. If it calls none, or if no frame is the user's, both are
 * the same frame. False if the stack has no frame. */
bool stack_frames_choose(const char *frames, struct stack_frame *ret_called,
                         struct stack_frame *ret_user);

#endif
