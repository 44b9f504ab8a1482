#include "pystack/py_lines.h"

enum {
    UNIT = 2, /* bytes of an instruction */
    NO_LINE = -128,
    CODE_NO_LOCATION = 15,
    CODE_LONG = 14,
    CODE_NO_COLUMNS = 13,
    CODE_ONE_LINE_0 = 10,
    VARINT_BYTES = 6, /* of 6 bits each */
};

static int line_of(int64_t line)
{
    return line > 0 && line < INT32_MAX ? (int)line : 0;
}

/* Search a table of pairs: the increment of the offset, and the increment of the line. */
static int lnotab_find(const unsigned char *table, size_t size, int64_t line, int64_t offset)
{
    int64_t at = 0;
    for (size_t i = 0; i + 1 < size; i += 2) {
        at += table[i];
        if (at > offset)
            break;
        line += (int8_t)table[i + 1];
    }
    return line_of(line);
}

/* Search a table of pairs: the length of a range, and the difference of its line from the line of
 * the previous range. */
static int ranges_find(const unsigned char *table, size_t size, int64_t line, int64_t offset)
{
    int64_t end = 0;
    for (size_t i = 0; i + 1 < size; i += 2) {
        const int8_t delta = (int8_t)table[i + 1];
        end += table[i];
        line += delta != NO_LINE ? delta : 0;
        if (end > offset)
            return line_of(line);
    }
    return 0;
}

static int64_t signed_varint(const unsigned char *p, const unsigned char *end)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < VARINT_BYTES && p < end; i++, p++) {
        value |= (uint64_t)(*p & 0x3f) << (6 * i);
        if ((*p & 0x40) == 0)
            break;
    }
    const int64_t half = (int64_t)(value >> 1);
    return (value & 1) != 0 ? -half : half;
}

/* Search a table of entries. Only the first byte of an entry has the top bit set; this byte also
 * contains the kind and the length. */
static int locations_find(const unsigned char *table, size_t size, int64_t line, int64_t offset)
{
    const unsigned char *p = table;
    const unsigned char *end = table + size;
    int64_t at = 0;
    while (p < end) {
        const unsigned kind = *p >> 3 & 15;
        at += ((int64_t)(*p & 7) + 1) * UNIT;
        p++;
        if (kind == CODE_LONG || kind == CODE_NO_COLUMNS)
            line += signed_varint(p, end);
        else if (kind >= CODE_ONE_LINE_0 && kind != CODE_NO_LOCATION)
            line += kind - CODE_ONE_LINE_0;
        if (at > offset)
            return line_of(line);
        while (p < end && (*p & 0x80) == 0)
            p++;
    }
    return 0;
}

int py_lines_find(enum py_lines_kind kind, const unsigned char *table, size_t size, int first_line,
                  int64_t offset)
{
    if (offset < 0)
        return line_of(first_line);
    return kind == PY_LINES_LNOTAB   ? lnotab_find(table, size, first_line, offset)
           : kind == PY_LINES_RANGES ? ranges_find(table, size, first_line, offset)
                                     : locations_find(table, size, first_line, offset);
}
