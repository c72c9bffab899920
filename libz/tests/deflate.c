/* What a program sees of the deflate side, of checksums and of whole bodies, in a table of one line a call. abi.sh runs it with two
 * libraries, whose tables are to be equal. Compressed bytes are each library's own: how many there are, and how many have come before
 * the end of a stream, is not in the table. That the whole stream can be inflated is. */

#include "table.h"

#define OUT_LEN 2000000u

static Bytef out[OUT_LEN], back[DATA_LEN + 1];

/* A deflate stream, and what of it there is by now. */
struct run {
    z_stream strm;
    int bits;
    size_t fed; /* Bytes of `data` that were taken. */
};

static int begin(struct run *run, int level, int bits, int mem_level, int strategy)
{
    memset(run, 0, sizeof(*run));
    run->bits = bits;
    run->strm.zalloc = counted;
    run->strm.zfree = counted_free;
    run->strm.next_out = out;
    return deflateInit2(&run->strm, level, Z_DEFLATED, bits, mem_level, strategy);
}

static uInt room(const struct run *run)
{
    return OUT_LEN - (uInt)(run->strm.next_out - out);
}

/* Hands `len` more bytes in. */
static int feed(struct run *run, uInt len, uInt avail_out, int flush)
{
    z_stream *strm = &run->strm;
    strm->next_in = data + run->fed;
    strm->avail_in = len;
    strm->avail_out = avail_out;
    int code = deflate(strm, flush);
    run->fed = (size_t)(strm->next_in - data);
    return code;
}

/* Whether what came out is what went in. */
static const char *whole(const struct run *run)
{
    z_stream strm = { 0 };
    /* With 256 bytes of window zlib makes a stream that asks for 512. */
    int code = inflateInit2(&strm, run->bits == 8 ? 9 : run->bits);
    strm.next_in = out;
    strm.avail_in = (uInt)(run->strm.next_out - out);
    strm.next_out = back;
    strm.avail_out = sizeof(back);
    if (code == Z_OK)
        code = inflate(&strm, Z_FINISH);
    int same = code == Z_STREAM_END && strm.avail_in == 0 && strm.total_out == run->fed && memcmp(back, data, run->fed) == 0;
    inflateEnd(&strm);
    return same ? "whole" : text("NOT whole (%d, %lu of %zu bytes)", code, strm.total_out, run->fed);
}

/* Ends the stream with 1,000 more bytes, asks once more, and lets go of it. */
static void end(const char *what, struct run *run)
{
    int code = feed(run, 1000, room(run), Z_FINISH);
    say(text("%s, finish", what), &run->strm, code);
    if (code == Z_STREAM_END)
        printf("%s: %s\n", what, whole(run));
    code = feed(run, 0, 100, Z_FINISH);
    say(text("%s, finish again", what), &run->strm, code);
    code = deflateEnd(&run->strm);
    printf("%s, end: %d, %ld blocks left", what, code, blocks);
    printf(", then %d\n", deflateEnd(&run->strm));
}

static void layout(void)
{
#define FIELD(type, field) printf(#type "." #field ": %zu, %zu bytes\n", offsetof(type, field), sizeof(((type *)0)->field))
    printf("z_stream: %zu, gz_header: %zu, uLong: %zu, version %s, flags %lx\n", sizeof(z_stream), sizeof(gz_header), sizeof(uLong),
           zlibVersion(), zlibCompileFlags());
    FIELD(z_stream, next_in), FIELD(z_stream, avail_in), FIELD(z_stream, total_in), FIELD(z_stream, next_out);
    FIELD(z_stream, avail_out), FIELD(z_stream, total_out), FIELD(z_stream, msg), FIELD(z_stream, state), FIELD(z_stream, zalloc);
    FIELD(z_stream, zfree), FIELD(z_stream, opaque), FIELD(z_stream, data_type), FIELD(z_stream, adler), FIELD(z_stream, reserved);
    FIELD(gz_header, text), FIELD(gz_header, time), FIELD(gz_header, xflags), FIELD(gz_header, os), FIELD(gz_header, extra);
    FIELD(gz_header, extra_len), FIELD(gz_header, extra_max), FIELD(gz_header, name), FIELD(gz_header, name_max);
    FIELD(gz_header, comment), FIELD(gz_header, comm_max), FIELD(gz_header, hcrc), FIELD(gz_header, done);
    for (int code = -7; code <= 3; code++)
        printf("zError(%d): %s\n", code, code < -6 || code > 2 ? "not asked" : zError(code));
}

static void inits(void)
{
    static const int levels[] = { -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100 };
    static const int bits[] = { -100, -47, -16, -15, -14, -9, -8, -7, -1, 0, 1, 7, 8, 9, 14, 15, 16, 22, 23, 24, 25, 31, 32, 47, 100 };
    static const int mem_levels[] = { -1, 0, 1, 2, 8, 9, 10 };
    static const int strategies[] = { -1, 0, 1, 2, 3, 4, 5 };
    struct run run;
    for (size_t l = 0; l < COUNT(levels); l++)
        for (size_t b = 0; b < COUNT(bits); b++) {
            const char *what = text("level %d, bits %d", levels[l], bits[b]);
            int code = begin(&run, levels[l], bits[b], 8, Z_DEFAULT_STRATEGY);
            say(what, &run.strm, code);
            if (code == Z_OK)
                end(what, &run);
        }
    for (size_t m = 0; m < COUNT(mem_levels); m++)
        for (size_t s = 0; s < COUNT(strategies); s++) {
            const char *what = text("memLevel %d, strategy %d", mem_levels[m], strategies[s]);
            int code = begin(&run, 6, 15, mem_levels[m], strategies[s]);
            say(what, &run.strm, code);
            if (code == Z_OK)
                end(what, &run);
        }
    z_stream strm = { 0 };
    const int size = (int)sizeof(strm);
    printf("method 7: %d\n", deflateInit2(&strm, 6, 7, 15, 8, 0));
    printf("stream NULL: %d\n", deflateInit(Z_NULL, 6));
    printf("version NULL: %d\n", deflateInit_(&strm, 6, Z_NULL, size));
    printf("version empty: %d\n", deflateInit_(&strm, 6, "", size));
    printf("version 2.0: %d\n", deflateInit_(&strm, 6, "2.0", size));
    printf("size - 1: %d\n", deflateInit_(&strm, 6, "1.2.3", size - 1));
    printf("size + 8: %d\n", deflateInit_(&strm, 6, "1.2.3", size + 8));
    printf("stream NULL, version 2.0: %d\n", deflateInit_(Z_NULL, 6, "2.0", size));
    printf("version 1.9: %d\n", deflateInit_(&strm, 6, "1.9", size));
    printf("functions that are set: %d\n", strm.zalloc && strm.zfree);
    printf("end: %d\n", deflateEnd(&strm));
    for (int allowed = 0; allowed < 2; allowed++) {
        int left = allowed;
        z_stream poor = { .zalloc = counted, .zfree = counted_free, .opaque = &left };
        int code = deflateInit(&poor, 6);
        printf("%d allocations: %d, %s, %ld blocks left", allowed, code, poor.msg ? poor.msg : "-", blocks);
        printf(", end: %d\n", deflateEnd(&poor));
    }
}

/* States of a stream in which something is asked of it. */
enum state { FRESH, GIVEN_LITTLE, GIVEN_MUCH, BLOCKED, PARTIAL, SYNCED, FULL, SYNCED_MUCH, AFTER_SYNC, WAITING, ENDED, END_WAITING,
    RESET, KEPT, ENDED_RESET, COPIED, STATES };

static const char *const states[STATES] = { "fresh", "given little", "given much", "blocked", "partially flushed", "synced", "fully flushed",
    "synced with much", "given after a sync", "synced, output waiting", "ended", "ended, output waiting", "reset", "reset, keeping", "ended, reset", "copied" };

static int begin_in(struct run *run, enum state state, int level, int bits, int strategy)
{
    int code = begin(run, level, bits, 8, strategy);
    if (code != Z_OK || state == FRESH)
        return code;
    /* What deflateResetKeep keeps of data is stock zlib's own: it is no call of zlib.h's. */
    int much = state == GIVEN_MUCH || state == SYNCED_MUCH;
    uInt len = state == KEPT ? 0 : much ? 120000 : 500;
    static const int flushes[STATES] = { [BLOCKED] = Z_BLOCK, [PARTIAL] = Z_PARTIAL_FLUSH, [SYNCED] = Z_SYNC_FLUSH, [FULL] = Z_FULL_FLUSH,
        [SYNCED_MUCH] = Z_SYNC_FLUSH, [AFTER_SYNC] = Z_SYNC_FLUSH, [WAITING] = Z_SYNC_FLUSH, [ENDED] = Z_FINISH, [END_WAITING] = Z_FINISH, [ENDED_RESET] = Z_FINISH };
    /* More than is collected, but not by the first call. */
    if (much)
        feed(run, len, OUT_LEN, Z_NO_FLUSH);
    code = feed(run, len, state == WAITING || state == END_WAITING ? 20 : room(run), flushes[state]);
    if (state == AFTER_SYNC)
        code = feed(run, 500, room(run), Z_NO_FLUSH);
    if (state == RESET || state == KEPT || state == ENDED_RESET) {
        code = state == KEPT ? deflateResetKeep(&run->strm) : deflateReset(&run->strm);
        run->strm.next_out = out;
        run->fed = 0;
    }
    if (state == COPIED) {
        z_stream copy;
        code = deflateCopy(&copy, &run->strm);
        deflateEnd(&run->strm);
        if (code == Z_OK)
            code = deflateCopy(&run->strm, &copy);
        deflateEnd(&copy);
    }
    return code;
}

/* Asks something of a stream: `what` counts from nought, and beyond the last of it `asked` is null. */
static int ask(struct run *run, int what, const char **asked)
{
    static const int params[][2] = { { 6, 0 }, { 7, 0 }, { 1, 0 }, { 0, 0 }, { -1, 0 }, { 10, 0 }, { -2, 0 }, { 6, 2 }, { 6, 4 }, { 6, 5 }, { 6, -1 } };
    static const int flushes[] = { -1, 0, 1, 2, 3, 4, 5, 6, 7 };
    static Bytef dictionary[40000];
    static gz_header head;
    z_stream *strm = &run->strm;
    strm->next_in = data + run->fed;
    strm->avail_in = 0;
    strm->avail_out = room(run);
    if (what < 9)
        return *asked = text("flush %d", flushes[what]), feed(run, 0, room(run), flushes[what]);
    if (what < 18)
        return *asked = text("100 bytes, flush %d", flushes[what - 9]), feed(run, 100, room(run), flushes[what - 9]);
    if (what < 27)
        return *asked = text("100 bytes, no room, flush %d", flushes[what - 18]), feed(run, 100, 0, flushes[what - 18]);
    if (what < 38) {
        const int *to = params[what - 27];
        return *asked = text("params %d %d", to[0], to[1]), deflateParams(strm, to[0], to[1]);
    }
    unsigned pending = 0;
    int bits = 0, code;
    uInt len = 0;
    switch (what) {
    case 38:
        code = deflatePending(strm, &pending, &bits);
        *asked = text("pending, %s", bits >= 0 && bits < 8 ? "good bits" : "BAD bits");
        return code;
    case 39: *asked = "pending into NULL"; return deflatePending(strm, Z_NULL, Z_NULL);
    case 40: *asked = "prime with an empty block"; return deflatePrime(strm, 10, 2);
    case 41: *asked = "prime 17 bits"; return deflatePrime(strm, 17, 2);
    case 42: *asked = "tune"; return deflateTune(strm, 4, 4, 16, 16);
    case 43: *asked = "set the dictionary NULL"; return deflateSetDictionary(strm, Z_NULL, 10);
    case 44:
        *asked = "get the dictionary";
        code = deflateGetDictionary(strm, dictionary, &len);
        if (code == Z_OK)
            *asked = text("get the dictionary, %s", len <= run->fed && memcmp(dictionary, data + run->fed - len, len) == 0 ? "good" : "BAD");
        return code;
    case 45: *asked = "get the dictionary into NULL"; return deflateGetDictionary(strm, Z_NULL, Z_NULL);
    case 46: *asked = "set a header"; return deflateSetHeader(strm, &head);
    case 47: *asked = "set the header NULL"; return deflateSetHeader(strm, Z_NULL);
    case 48: *asked = "copy to NULL"; return deflateCopy(Z_NULL, strm);
    case 49:
        *asked = "nothing at next_in";
        strm->next_in = Z_NULL;
        strm->avail_in = 10;
        code = deflate(strm, Z_NO_FLUSH);
        strm->next_in = data + run->fed;
        return code;
    case 50: {
        *asked = "nowhere at next_out";
        Bytef *at = strm->next_out;
        strm->next_out = Z_NULL;
        code = deflate(strm, Z_NO_FLUSH);
        strm->next_out = at;
        return code;
    }
    case 51:
        *asked = "no zalloc";
        strm->zalloc = Z_NULL;
        code = deflate(strm, Z_NO_FLUSH);
        strm->zalloc = counted;
        return code;
    case 52: {
        *asked = "a copy by memcpy";
        z_stream moved = *strm;
        int codes[] = { deflate(&moved, Z_FINISH), deflateReset(&moved), deflateResetKeep(&moved), deflateParams(&moved, 1, 0), deflateEnd(&moved),
            deflatePending(&moved, &pending, &bits), deflatePrime(&moved, 1, 1), deflateTune(&moved, 1, 1, 1, 1), deflateSetHeader(&moved, &head),
            deflateSetDictionary(&moved, data, 10), deflateGetDictionary(&moved, dictionary, &len) };
        for (size_t i = 1; i < COUNT(codes); i++)
            if (codes[i] != codes[0])
                *asked = text("%s, code %zu is %d", *asked, i, codes[i]);
        return codes[0];
    }
    case 53: *asked = "inflate it"; return inflate(strm, Z_NO_FLUSH);
    case 54: *asked = "reset"; code = deflateReset(strm); strm->next_out = out; run->fed = 0; return code;
    }
    *asked = NULL;
    return 0;
}

static void asked_in_states(int level, int bits, int strategy)
{
    for (int state = 0; state < STATES; state++) {
        const char *asked = "";
        for (int what = 0; asked; what++) {
            struct run run;
            int code = begin_in(&run, state, level, bits, strategy);
            const char *in = text("level %d, bits %d, strategy %d, %s", level, bits, strategy, states[state]);
            if (what == 0)
                say(in, &run.strm, code);
            code = ask(&run, what, &asked);
            if (asked) {
                say(in = text("%s, %s", in, asked), &run.strm, code);
                end(in, &run);
            }
            else
                deflateEnd(&run.strm);
        }
    }
}

/* Streams whose caller has little room at a time: the code at the end, and that it is whole. */
static void little_room(void)
{
    static const uInt rooms[] = { 1, 2, 7, 100, 5000 };
    static const uInt lens[] = { 0, 1, 100, 5000, 70000, 300000 };
    for (size_t r = 0; r < COUNT(rooms); r++)
        for (size_t l = 0; l < COUNT(lens); l++)
            for (int flush = 0; flush <= Z_BLOCK; flush++)
                for (int bits = -15; bits <= 31; bits += bits < 0 ? 30 : 16) {
                    /* zlib.h: a flush whose marker fills the room is made again. */
                    if ((flush != Z_NO_FLUSH && rooms[r] < 7) || (lens[l] > 5000 && rooms[r] < 100))
                        continue;
                    struct run run;
                    begin(&run, 6, bits, 8, Z_DEFAULT_STRATEGY);
                    int code = Z_OK;
                    while (run.fed < lens[l] && code == Z_OK) {
                        uInt left = lens[l] - (uInt)run.fed, part = left < 30000 ? left : 30000;
                        code = feed(&run, part, rooms[r], flush == Z_FINISH && left > part ? Z_NO_FLUSH : flush);
                        while (code == Z_OK && flush != Z_NO_FLUSH && flush != Z_FINISH && run.strm.avail_in == 0 && run.strm.avail_out == 0)
                            code = feed(&run, 0, rooms[r], flush);
                        code = code == Z_BUF_ERROR ? Z_OK : code;
                    }
                    while (code == Z_OK)
                        code = feed(&run, 0, rooms[r], Z_FINISH);
                    const char *what = text("%u bytes into %u, flush %d, bits %d", lens[l], rooms[r], flush, bits);
                    printf("%s: %d, %s, end %d\n", what, code, whole(&run), deflateEnd(&run.strm));
                }
}

/* Streams that are let go of before all output was taken, and what another flush is then. */
static void early_ends(void)
{
    static const uInt rooms[] = { 1, 2, 5, 9, 10, 11, 12 };
    static const uInt lens[] = { 0, 50, 1000, 10000 };
    static const int before[] = { -1, Z_NO_FLUSH, Z_BLOCK, Z_SYNC_FLUSH };
    for (size_t b = 0; b < COUNT(before); b++)
        for (size_t r = 0; r < COUNT(rooms); r++)
            for (size_t l = 0; l < COUNT(lens); l++)
                for (int bits = -15; bits <= 31; bits += bits < 0 ? 30 : 16)
                    for (int again = -1; again <= Z_BLOCK; again++) {
                        struct run run;
                        const char *what = text("before %d, %u bytes into %u, bits %d", before[b], lens[l], rooms[r], bits);
                        begin(&run, 6, bits, 8, Z_DEFAULT_STRATEGY);
                        if (before[b] >= 0)
                            feed(&run, 100, room(&run), before[b]);
                        int code = feed(&run, lens[l], rooms[r], Z_FINISH);
                        say(what, &run.strm, code);
                        if (again >= 0)
                            say(text("%s, then flush %d", what, again), &run.strm, feed(&run, 0, rooms[r], again));
                        printf("%s, end: %d\n", what, deflateEnd(&run.strm));
                    }
}

static void dictionaries(void)
{
    static const uInt lens[] = { 0, 1, 2, 3, 1000, 32506, 32768, 40000 };
    for (size_t l = 0; l < COUNT(lens); l++)
        for (int bits = -15; bits <= 31; bits += bits < 0 ? 30 : 16)
            for (int level = 0; level <= 9; level += 3) {
                struct run run;
                const char *what = text("dictionary of %u, bits %d, level %d", lens[l], bits, level);
                begin(&run, level, bits, 8, Z_DEFAULT_STRATEGY);
                int code = deflateSetDictionary(&run.strm, data + 200000, lens[l]);
                say(what, &run.strm, code);
                uInt len = 0;
                code = deflateGetDictionary(&run.strm, back, &len);
                printf("%s, got: %d, %u bytes\n", what, code, len);
                code = feed(&run, 90000, room(&run), Z_FINISH);
                say(text("%s, finish", what), &run.strm, code);
                z_stream strm = { .next_in = out, .avail_in = OUT_LEN - room(&run), .next_out = back, .avail_out = sizeof(back) };
                inflateInit2(&strm, bits);
                if (bits < 0)
                    inflateSetDictionary(&strm, data + 200000, lens[l]);
                code = inflate(&strm, Z_FINISH);
                printf("%s, inflated: %d", what, code);
                if (code == Z_NEED_DICT) {
                    printf(", then %d", inflateSetDictionary(&strm, data + 200000, lens[l]));
                    code = inflate(&strm, Z_FINISH);
                }
                printf(", %d, %lu bytes, %s\n", code, strm.total_out, memcmp(back, data, 90000) == 0 ? "equal" : "NOT equal");
                inflateEnd(&strm);
                deflateEnd(&run.strm);
            }
}

static void headers(void)
{
    Bytef extra[] = "an extra field", got_extra[100], got_name[100], got_comment[100];
    for (int given = 0; given < 32; given++) {
        struct run run;
        gz_header head = { .text = given & 1, .time = 1234567890, .os = 7, .hcrc = given & 16 };
        head.extra = given & 2 ? extra : Z_NULL;
        head.extra_len = given & 2 ? sizeof(extra) : 0;
        head.name = given & 4 ? (Bytef *)"a name" : Z_NULL;
        head.comment = given & 8 ? (Bytef *)"a comment" : Z_NULL;
        begin(&run, 6, 31, 8, Z_DEFAULT_STRATEGY);
        int code = deflateSetHeader(&run.strm, &head);
        int ended = feed(&run, 50000, given & 1 ? room(&run) : 20, Z_FINISH);
        while (ended == Z_OK)
            ended = feed(&run, 50000 - (uInt)run.fed, 1000, Z_FINISH);
        printf("header %d: %d, %d, %s", given, code, ended, whole(&run));
        gz_header got = { .extra = got_extra, .extra_max = 100, .name = got_name, .name_max = 100, .comment = got_comment, .comm_max = 100 };
        z_stream strm = { .next_in = out, .avail_in = OUT_LEN - room(&run), .next_out = back, .avail_out = sizeof(back) };
        inflateInit2(&strm, 31);
        code = inflateGetHeader(&strm, &got);
        ended = inflate(&strm, Z_FINISH);
        printf(", %d, %d: text %d, time %lu, os %d, extra %s of %u, name %s, comment %s, hcrc %d, done %d\n", code, ended,
               got.text, got.time, got.os, got.extra ? (char *)got_extra : "-", got.extra ? got.extra_len : 0, got.name ? (char *)got_name : "-",
               got.comment ? (char *)got_comment : "-", got.hcrc, got.done);
        inflateEnd(&strm);
        deflateEnd(&run.strm);
    }
}

/* The header that is at the output's beginning. */
static void begins(const char *what, int code)
{
    printf("%s: %d, flags %d, name %.6s\n", what, code, out[3], out[3] & 8 ? (char *)out + 10 : "-");
}

/* A header outlives a reset, whenever it was set, until another one is set; and a bound has room for it. */
static void headers_again(void)
{
    gz_header head = { .time = 1234567890, .os = 7, .name = (Bytef *)"a name" };
    for (int late = 0; late < 2; late++) {
        struct run run;
        begin(&run, 6, 31, 8, Z_DEFAULT_STRATEGY);
        if (late)
            feed(&run, 5000, room(&run), Z_NO_FLUSH);
        int code = deflateSetHeader(&run.strm, &head);
        begins(text("set, late %d: %d", late, code), feed(&run, 5000, room(&run), Z_FINISH));
        printf("after its end: %d\n", deflateSetHeader(&run.strm, &head));
        for (int again = 0; again < 3; again++) {
            if (again == 2)
                printf("none: %d\n", deflateReset(&run.strm) == Z_OK ? deflateSetHeader(&run.strm, Z_NULL) : -9);
            else
                deflateReset(&run.strm);
            run.strm.next_out = out;
            run.strm.avail_out = OUT_LEN;
            run.fed = 0;
            begins(text("reset, late %d, %d", late, again), feed(&run, 5000, OUT_LEN, Z_FINISH));
        }
        deflateEnd(&run.strm);
    }
    static Bytef extra[60000];
    for (int bits = 25; bits <= 31; bits++)
        for (int mem_level = 1; mem_level <= 9; mem_level++)
            for (uInt len = 0; len <= 60000; len += 30000)
                for (int again = 0; again < 2; again++) {
                    struct run run;
                    gz_header big = { .os = 3, .extra = extra, .extra_len = len, .name = (Bytef *)"a name of some length, as files have them in archives" };
                    begin(&run, 6, bits, mem_level, Z_DEFAULT_STRATEGY);
                    int code = deflateSetHeader(&run.strm, &big);
                    if (again)
                        deflateReset(&run.strm);
                    run.fed = 80000;
                    uInt bound = (uInt)deflateBound(&run.strm, 10);
                    code = feed(&run, 10, bound, Z_FINISH);
                    printf("bound, header of %u, bits %d, memLevel %d, again %d: %d\n", len, bits, mem_level, again, code);
                    deflateEnd(&run.strm);
                }
}

/* Bits before raw data: they can be seen. */
static void primed(void)
{
    for (int bits = -1; bits <= 17; bits++) {
        struct run run;
        begin(&run, 6, -15, 8, Z_DEFAULT_STRATEGY);
        int code = deflatePrime(&run.strm, bits, 0x15a5b);
        const char *what = text("prime %d bits", bits);
        say(what, &run.strm, code);
        if (code == Z_OK) {
            code = feed(&run, 5000, room(&run), Z_FINISH);
            unsigned seen = (out[0] | (unsigned)out[1] << 8) & ((1u << bits) - 1);
            z_stream strm = { .next_in = out + bits / 8, .avail_in = OUT_LEN - room(&run) - (uInt)(bits / 8), .next_out = back, .avail_out = 5000 };
            inflateInit2(&strm, -15);
            if (bits % 8 != 0)
                inflatePrime(&strm, 8 - bits % 8, *strm.next_in >> bits % 8), strm.next_in++, strm.avail_in--;
            int ended = inflate(&strm, Z_FINISH);
            printf("%s: %d, %x, inflated %d, %s\n", what, code, seen, ended, memcmp(back, data, 5000) == 0 ? "equal" : "NOT equal");
            inflateEnd(&strm);
        }
        deflateEnd(&run.strm);
    }
}

/* Bits in the middle of a stream, how often, and what a call that brings nothing is then. */
static void primed_later(void)
{
    static const int before[] = { Z_NO_FLUSH, Z_PARTIAL_FLUSH, Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_BLOCK };
    static const int times[] = { 1, 2, 3, 20, 3000 };
    for (size_t b = 0; b < COUNT(before); b++)
        for (int bits = 0; bits <= 16; bits++)
            for (size_t t = 0; t < COUNT(times); t++)
                for (int flush = 0; flush <= Z_BLOCK; flush++)
                    for (int wrap = -15; wrap <= 31; wrap += wrap < 0 ? 30 : 16) {
                        /* With what is left of zlib's last byte it may be one. */
                        int has_rest = before[b] == Z_PARTIAL_FLUSH || before[b] == Z_BLOCK;
                        if (has_rest && bits > 0 && bits * times[t] < 8)
                            continue;
                        struct run run;
                        begin(&run, 6, wrap, 8, Z_DEFAULT_STRATEGY);
                        feed(&run, 3000, room(&run), before[b]);
                        int primed = 0, code = Z_OK;
                        while (primed < times[t] && code == Z_OK) {
                            code = deflatePrime(&run.strm, bits, 0x5a5b);
                            primed += code == Z_OK;
                        }
                        const char *what = text("after flush %d, bits %d, %d times %d bits", before[b], wrap, primed, bits);
                        say(what, &run.strm, code);
                        for (int again = 0; again < 2; again++)
                            say(text("%s, flush %d", what, flush), &run.strm, feed(&run, 0, room(&run), flush));
                        say(text("%s, 100 bytes", what), &run.strm, feed(&run, 100, room(&run), Z_NO_FLUSH));
                        say(text("%s, finish", what), &run.strm, feed(&run, 0, room(&run), Z_FINISH));
                        printf("%s, end: %d\n", what, deflateEnd(&run.strm));
                    }
}

/* One call has room for everything where it has as much as deflateBound says. */
static void bounds(void)
{
    static const uInt lens[] = { 0, 1, 100, 5000, 20000, 90000, 600000 };
    for (int level = 0; level <= 9; level++)
        for (size_t l = 0; l < COUNT(lens); l++)
            for (int from = 0; from <= 80000; from += 80000)
                for (int bits = 9; bits <= 31; bits += bits == 9 ? 6 : 16)
                    for (int mem_level = 1; mem_level <= 9; mem_level += 4) {
                        struct run run;
                        const char *what = text("bound, level %d, %u bytes from %d, bits %d, memLevel %d", level, lens[l], from, bits, mem_level);
                        int code = begin(&run, level, bits, mem_level, Z_DEFAULT_STRATEGY);
                        /* zlib 1.2.13 forgets a stored block's five bytes where there is hardly any data. */
                        if (level == 0 && lens[l] < 2) {
                            deflateEnd(&run.strm);
                            continue;
                        }
                        run.fed = (size_t)from;
                        uInt bound = (uInt)deflateBound(&run.strm, lens[l]);
                        code = feed(&run, lens[l], bound, Z_FINISH);
                        say(what, &run.strm, code);
                        deflateEnd(&run.strm);
                    }
    printf("bounds without a stream are as large as compressBound's: %d\n", deflateBound(Z_NULL, 1000000) >= compressBound(1000000));
    static const uLong sizes[] = { 0, 1, 4095, 4096, 16384, 1ul << 25, 1ul << 40 };
    for (size_t s = 0; s < COUNT(sizes); s++)
        printf("compressBound(%lu): %lu\n", sizes[s], compressBound(sizes[s]));
}

static void bodies(void)
{
    static const uLong lens[] = { 0, 1, 10, 100, 1000, 10000, 100000, DATA_LEN };
    for (int level = -2; level <= 10; level++)
        for (size_t l = 0; l < COUNT(lens); l++) {
            uLong len = lens[l];
            const char *what = text("compress2 of %lu, level %d", len, level);
            uLongf made = compressBound(len), exact, got;
            int code = compress2(out, &made, data, len, level);
            printf("%s: %d, some %d\n", what, code, made > 0);
            if (code != Z_OK)
                continue;
            got = len;
            code = uncompress(back, &got, out, made);
            printf("%s, uncompress: %d, %lu, %s\n", what, code, got, memcmp(back, data, len) == 0 ? "equal" : "NOT equal");
            exact = made;
            code = compress2(out, &exact, data, len, level);
            printf("%s, exact: %d, fits %d\n", what, code, exact <= made);
            exact = made / 2;
            printf("%s, too small: %d\n", what, compress2(out, &exact, data, len, level));
            exact = 0;
            code = compress2(out, &exact, data, len, level);
            printf("%s, no room: %d, %lu\n", what, code, exact);
            made = compressBound(len);
            compress2(out, &made, data, len, level);
            /* zlib 1.2.13 tells too little input from too little room by what it has left, and is wrong where it has no room at all. */
            for (uLong less = 1; less <= 5; less += 4) {
                got = len;
                printf("%s, cut by %lu: fails %d\n", what, less, uncompress(back, &got, out, made > less ? made - less : 0) < 0);
            }
            for (uLong room = len / 2; len > 1; room /= 2) {
                got = room;
                printf("%s, uncompress into %lu: fails %d\n", what, room, uncompress(back, &got, out, made) < 0);
                if (room == 0)
                    break;
            }
            uLong source = made + 100;
            got = len;
            code = uncompress2(back, &got, out, &source);
            printf("%s, uncompress2: %d, %lu, all %d\n", what, code, got, source == made);
        }
    uLongf len = 100;
    printf("compress of NULL: %d\n", compress(out, &len, Z_NULL, 0));
    printf("some: %d\n", len > 0);
    for (int source = 0; source < 2; source++)
        for (int level = -1; level <= 77; level += 78)
            for (uLong room = 0; room <= 100; room += 100)
                for (uLong size = 0; size <= 100; size += 100) {
                    len = room;
                    int code = compress2(source ? NULL : out, &len, source ? data : NULL, size, level);
                    printf("compress2 of %lu bytes %s NULL, level %d: %d, %d\n", size, source ? "into" : "at", level, code, len > 0);
                }
    len = 100;
    printf("compress of nothing good: %d\n", compress(out, &len, data, 0));
}

/* What the data is guessed to be: of what fits into zlib's first block in any case. */
static void data_types(void)
{
    static const int levels[] = { 0, 1, 6, 9 };
    static Bytef bytes[16000];
    for (int byte = 0; byte < 257; byte++)
        for (size_t l = 0; l < COUNT(levels); l++)
            for (int flush = 0; flush <= Z_FINISH; flush += 2)
                for (int filler = 7; filler <= 'a'; filler += 'a' - 7) {
                    z_stream strm = { .next_in = bytes, .avail_in = sizeof(bytes), .next_out = out, .avail_out = OUT_LEN };
                    memset(bytes, filler, sizeof(bytes));
                    if (byte < 256)
                        bytes[15999] = (Bytef)byte;
                    deflateInit(&strm, levels[l]);
                    const char *what = text("byte %d in %d, level %d, flush %d", byte, filler, levels[l], flush);
                    int code = deflate(&strm, flush);
                    if (flush != Z_NO_FLUSH)
                        printf("%s: %d, data_type %d\n", what, code, strm.data_type);
                    strm.next_in = data + 90000;
                    strm.avail_in = flush == Z_FINISH ? 0 : 1;
                    code = deflate(&strm, Z_FINISH);
                    printf("%s: %d, data_type %d", what, code, strm.data_type);
                    deflateReset(&strm);
                    printf(", reset %d\n", strm.data_type);
                    deflateEnd(&strm);
                }
}

static void checksums(void)
{
    static const uInt lens[] = { 0, 1, 15, 16, 17, 5551, 5552, 5553, 100000 };
    printf("crc32 of NULL: %lx %lx %lx\n", crc32(0, Z_NULL, 0), crc32(5, Z_NULL, 9), crc32_z(7, Z_NULL, 3));
    printf("adler32 of NULL: %lx %lx %lx\n", adler32(0, Z_NULL, 0), adler32(5, Z_NULL, 9), adler32_z(7, Z_NULL, 3));
    for (size_t l = 0; l < COUNT(lens); l++)
        for (uInt from = 0; from < 5; from++) {
            const Bytef *at = data + from;
            uLong crc = crc32(12345, at, lens[l]), adler = adler32(12345, at, lens[l]);
            printf("%u from %u: %lx %lx %lx %lx", lens[l], from, crc, crc32_z(12345, at, lens[l]), adler, adler32_z(12345, at, lens[l]));
            printf(", combined %lx %lx", crc32_combine(77, crc, lens[l]), adler32_combine(77, adler, lens[l]));
            printf(" %lx %lx", crc32_combine64(77, crc, lens[l]), adler32_combine64(77, adler, lens[l]));
            printf(" %lx\n", crc32_combine_op(77, crc, crc32_combine_gen(lens[l])));
        }
    printf("sums that are not modulo 65521: %lx %lx\n", adler32(0xffffffff, data, 100), adler32(0xfff1fff1, data, 1));
    printf("a sum of more than 32 bits: %lx %lx\n", crc32(0x123456789a, data, 100), adler32(0x123456789a, data, 100));
    static const uLong seeds[] = { 0, 1, 0xfff0fff0, 0xfff1fff1, 0xfff10000, 0xffffffff };
    for (size_t d = 0; d < COUNT(seeds); d++)
        printf("adler32 of nothing after %lx: %lx %lx\n", seeds[d], adler32(seeds[d], data, 0), adler32_z(seeds[d], data, 0));
    printf("adler32_combine of less than nothing: %lx\n", adler32_combine(1, 1, -1));
    uLong all = 0;
    const z_crc_t *table = get_crc_table();
    for (int i = 0; i < 256; i++)
        all = all * 31 + table[i];
    printf("get_crc_table: %lx\n", all);
}

static void without_streams(void)
{
    z_stream none = { 0 };
    uInt len = 0;
    unsigned pending;
    int bits;
    z_stream *const streams[] = { Z_NULL, &none };
    for (size_t s = 0; s < COUNT(streams); s++) {
        z_stream *strm = streams[s];
        printf("%s:", strm ? "a stream of zeros" : "no stream");
        for (int flush = -1; flush <= 6; flush++)
            printf(" %d", deflate(strm, flush));
        printf(" %d %d %d %d", deflateEnd(strm), deflateReset(strm), deflateResetKeep(strm), deflateParams(strm, 6, 0));
        printf(" %d %d %d", deflatePrime(strm, 1, 1), deflateTune(strm, 1, 1, 1, 1), deflateSetHeader(strm, Z_NULL));
        printf(" %d %d", deflateSetDictionary(strm, data, 10), deflateGetDictionary(strm, back, &len));
        printf(" %d %d %d\n", deflatePending(strm, &pending, &bits), deflateCopy(&none, strm), deflateCopy(strm, Z_NULL));
    }
}

/* Streams, input and output at addresses that are no multiple of anything, as programs have them that keep a z_stream in a packed record. */
static void misaligned(void)
{
    static Bytef streams[2][sizeof(z_stream) + 8], in[20008], packed[30008], out[20008];
    for (size_t at = 1; at < 8; at++) {
        z_stream *strm = (z_stream *)(void *)(streams[0] + at), *copy = (z_stream *)(void *)(streams[1] + 8 - at);
        memset(streams, 0, sizeof(streams));
        memcpy(in + at, data, 20000);
        int code = deflateInit(strm, 6);
        strm->next_in = in + at, strm->avail_in = 10000, strm->next_out = packed + 8 - at, strm->avail_out = 30000;
        printf("at %zu: %d, %d", at, code, deflate(strm, Z_NO_FLUSH));
        printf(", copy %d", deflateCopy(copy, strm));
        printf(", end %d", deflateEnd(strm));
        copy->avail_in = 10000;
        code = deflate(copy, Z_FINISH);
        uInt len = (uInt)copy->total_out;
        printf(", finish %d, adler %lx, in %lu, end %d", code, copy->adler, copy->total_in, deflateEnd(copy));
        memset(strm, 0, sizeof(*strm));
        code = inflateInit(strm);
        strm->next_in = packed + 8 - at, strm->avail_in = len, strm->next_out = out + at, strm->avail_out = 20000;
        printf(", inflate %d, %d", code, inflate(strm, Z_FINISH));
        printf(", out %lu, %s, end %d\n", strm->total_out, memcmp(out + at, data, 20000) == 0 ? "equal" : "NOT equal", inflateEnd(strm));
    }
}

int main(void)
{
    make_data();
    layout();
    misaligned();
    without_streams();
    inits();
    for (int level = 0; level <= 6; level += 3)
        for (int bits = -15; bits <= 31; bits += bits < 0 ? 30 : 16)
            asked_in_states(level, bits, Z_DEFAULT_STRATEGY);
    asked_in_states(6, 15, Z_HUFFMAN_ONLY);
    asked_in_states(1, 12, Z_DEFAULT_STRATEGY);
    little_room();
    early_ends();
    dictionaries();
    headers();
    headers_again();
    primed();
    primed_later();
    bounds();
    bodies();
    data_types();
    checksums();
    return 0;
}
