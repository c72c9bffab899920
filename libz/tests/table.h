/* What the tables' programs share: data, memory that is counted, and lines of text. */

#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define COUNT(list) (sizeof(list) / sizeof(*(list)))
#define DATA_LEN 1000000u

static Bytef data[DATA_LEN];
static long blocks; /* Allocated and not freed. */

static inline unsigned random_next(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 16;
}

/* Words, and every 100,000 bytes a stretch that cannot be compressed. */
static inline void make_data(void)
{
    static const char *const words[] = { "weir", "gate ", "<div class=\"", "\">", "0123", "sluice ", "and ", "\n", "of the ", "</div>" };
    for (size_t at = 0; at < DATA_LEN;)
        for (const char *word = words[random_next() % COUNT(words)]; *word && at < DATA_LEN; at++, word++)
            data[at] = at % 100000 > 80000 ? (Bytef)random_next() : (Bytef)*word;
}

/* A `zalloc` whose memory is aligned to 8 bytes and no more, as PostgreSQL's and nginx's is. `opaque` is null, or points to how many more
 * allocations there may be. */
static inline voidpf counted(voidpf opaque, uInt items, uInt size)
{
    int *left = opaque;
    if (left && (*left)-- <= 0)
        return Z_NULL;
    blocks++;
    return (char *)malloc((size_t)items * size + 8) + 8;
}

static inline void counted_free(voidpf opaque, voidpf address)
{
    (void)opaque;
    blocks--;
    free((char *)address - 8);
}

/* A text, which is good for the next seven calls. */
__attribute__((format(printf, 1, 2))) static inline const char *text(const char *format, ...)
{
    static char texts[8][200];
    static unsigned which;
    char *room = texts[which++ % COUNT(texts)];
    va_list args;
    va_start(args, format);
    vsnprintf(room, sizeof(texts[0]), format, args);
    va_end(args);
    return room;
}

/* A line of a stream, after a call that answered `code`. */
static inline void say(const char *what, const z_stream *strm, int code)
{
    printf("%s: %d, %s, in %lu, adler %08lx\n", what, code, strm->msg ? strm->msg : "-", strm->total_in, strm->adler);
}
