/* What a program sees of the inflate side, in a table as deflate.c's: what it says of streams that are wrong in each way that it has a
 * message for, of those that come in pieces, and of calls out of order. Streams are written bit by bit here: RFC 1950 to 1952 say how.
 * What zlib's own infcover asks through its public interface is among them, written anew. */

#include "table.h"

static Bytef in[2000000], out[DATA_LEN + 1], window[32768];
static size_t in_len; /* Whole bytes of `in`. */
static unsigned in_bits, in_held;

static void put(unsigned value, unsigned bits)
{
    for (; bits > 0; bits--, value >>= 1) {
        in_held |= (value & 1) << in_bits++;
        if (in_bits == 8) {
            in[in_len++] = (Bytef)in_held;
            in_bits = in_held = 0;
        }
    }
}

/* A Huffman code, whose bits come from the highest on. */
static void put_code(unsigned code, unsigned bits)
{
    while (bits-- > 0)
        put(code >> bits & 1, 1);
}

static void put_bytes(const char *bytes, size_t len)
{
    if (in_bits > 0)
        put(0, 8 - in_bits);
    memcpy(in + in_len, bytes, len);
    in_len += len;
}

#define PUT_BYTES(bytes) put_bytes(bytes, sizeof(bytes) - 1)

static void clear(void)
{
    in_len = in_bits = in_held = 0;
}

/* A dynamic block's head, with code lengths of 3 bits each for the symbols 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1 15. */
static void put_dynamic(unsigned lens, unsigned dists, const char *code_lens)
{
    put(1, 1), put(2, 2), put(lens - 257, 5), put(dists - 1, 5), put((unsigned)strlen(code_lens) - 4, 4);
    for (; *code_lens; code_lens++)
        put((unsigned)(*code_lens - '0'), 3);
}

static void put_whole(int level, int bits, uInt len)
{
    z_stream strm = { .next_in = data, .avail_in = len, .next_out = in, .avail_out = sizeof(in) };
    clear();
    deflateInit2(&strm, level, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY);
    deflate(&strm, Z_FINISH);
    in_len = strm.total_out;
    deflateEnd(&strm);
}

static unsigned in_next(void *desc, z_const unsigned char **bytes)
{
    uInt *left = desc;
    uInt part = *left < 1000 ? *left : 1000;
    *bytes = in + in_len - *left;
    *left -= part;
    return part;
}

static int out_refused;

static int out_next(void *desc, unsigned char *bytes, unsigned len)
{
    Bytef **to = desc;
    memcpy(*to, bytes, len);
    *to += len;
    return out_refused;
}

/* Inflates what was put, at once, byte by byte, and where it is raw through inflateBack. */
static void inflated(const char *what, int bits)
{
    if (in_bits > 0)
        put(0, 8 - in_bits);
    for (uInt part = (uInt)in_len; part > 0; part = part > 1 ? 1 : 0) {
        z_stream strm = { .next_in = in, .next_out = out, .avail_out = sizeof(out), .zalloc = counted, .zfree = counted_free };
        int code = inflateInit2(&strm, bits);
        for (size_t at = 0; at < in_len && code == Z_OK; at += part) {
            strm.avail_in += part;
            code = inflate(&strm, Z_NO_FLUSH);
        }
        say(text("%s, bits %d, by %s", what, bits, part == 1 ? "bytes" : "all"), &strm, code);
        printf("%s: left %u, out %lu, crc %lx, mark %lx, sync point %d, codes %d", what, part == 1 ? 0 : strm.avail_in, strm.total_out,
               crc32(0, out, (uInt)strm.total_out), inflateMark(&strm), inflateSyncPoint(&strm), inflateCodesUsed(&strm) < 3000);
        code = inflateEnd(&strm);
        printf(", end %d, %ld blocks left\n", code, blocks);
    }
    if (bits >= 0)
        return;
    uInt left = (uInt)in_len;
    Bytef *to = out;
    z_stream strm = { 0 };
    int code = inflateBackInit(&strm, 15, window);
    printf("%s, back: %d", what, code);
    code = inflateBack(&strm, in_next, &left, out_next, &to);
    printf(", %d, %s, out %td, left %u", code, strm.msg ? strm.msg : "-", to - out, strm.next_in ? strm.avail_in : 0);
    code = inflateBackEnd(&strm);
    printf(", end %d\n", code);
}

static void wrong_blocks(void)
{
    clear(), put(1, 1), put(3, 2), inflated("block type 3", -15);
    clear(), put(1, 1), put(0, 2), PUT_BYTES("\x05\x00\x05\x00hello"), inflated("stored length without its complement", -15);
    clear(), put(1, 1), put(0, 2), PUT_BYTES("\x05\x00\xfa\xffhello"), inflated("stored", -15);
    clear(), put(1, 1), put(0, 2), PUT_BYTES("\x05\x00\xfa\xffhel"), inflated("stored, cut", -15);
    clear(), put(1, 1), put(0, 2), PUT_BYTES("\x00\x00\xff\xff"), inflated("stored nothing", -15);
    clear(), put(1, 1), put(1, 2), put_code(0, 7), inflated("fixed nothing", -15);
    clear(), put(1, 1), put(1, 2), put_code(0x30 + 'w', 8), put_code(0, 7), inflated("fixed byte", -15);
    clear(), put(1, 1), put(1, 2), put_code(0x30 + 'w', 8), put_code(1, 7), put_code(0, 5), put_code(0, 7), inflated("fixed match", -15);
    clear(), put(1, 1), put(1, 2), put_code(1, 7), put_code(0, 5), put_code(0, 7), inflated("match before there is anything", -15);
    clear(), put(1, 1), put(1, 2), put_code(0x30 + 'w', 8), put_code(1, 7), put_code(29, 5), put(0x1fff, 13), inflated("match too far back", -15);
    clear(), put(1, 1), put(1, 2), put_code(0xc6, 8), inflated("length code 286", -15);
    clear(), put(1, 1), put(1, 2), put_code(0xc7, 8), inflated("length code 287", -15);
    clear(), put(1, 1), put(1, 2), put_code(0x30 + 'w', 8), put_code(1, 7), put_code(30, 5), inflated("distance code 30", -15);
    clear(), put(1, 1), put(1, 2), put_code(0x30 + 'w', 8), put_code(1, 7), put_code(31, 5), inflated("distance code 31", -15);
    clear(), put_dynamic(288, 1, "1111"), inflated("288 length symbols", -15);
    clear(), put_dynamic(257, 31, "1111"), inflated("31 distance symbols", -15);
    clear(), put_dynamic(286, 30, "1111"), inflated("code lengths that are too many", -15);
    clear(), put_dynamic(257, 1, "7000"), inflated("code lengths that are too few", -15);
    clear(), put_dynamic(257, 1, "0000"), inflated("no code lengths", -15);
    clear(), put_dynamic(257, 1, "1001"), put_code(1, 1), put(0, 2), inflated("a repetition of nothing", -15);
    /* 17 and 18 have a bit each: 17 is 0, 18 is 1. */
    clear(), put_dynamic(257, 1, "0110"), put_code(1, 1), put(127, 7), put_code(1, 1), put(127, 7), inflated("a repetition beyond the end", -15);
    clear(), put_dynamic(257, 1, "0110"), put_code(1, 1), put(127, 7), put_code(1, 1), put(109, 7), inflated("no end of the block", -15);
    /* 18 is 0, 0 is 10, 1 is 11: symbols of one bit each, of which the last is the end of the block. */
    clear(), put_dynamic(257, 1, "001200000000000002");
    put_code(3, 2), put_code(3, 2), put_code(0, 1), put(127, 7), put_code(0, 1), put(105, 7), put_code(3, 2), put_code(2, 2);
    inflated("three codes of one bit", -15);
    clear(), put_dynamic(257, 4, "001200000000000002");
    put_code(3, 2), put_code(0, 1), put(127, 7), put_code(0, 1), put(106, 7), put_code(3, 2);
    put_code(3, 2), put_code(3, 2), put_code(3, 2), put_code(2, 2), inflated("three distances of one bit", -15);
    clear(), put_dynamic(257, 1, "001200000000000002");
    put_code(3, 2), put_code(0, 1), put(127, 7), put_code(0, 1), put(106, 7), put_code(3, 2), put_code(2, 2);
    put_code(0, 1), put_code(0, 1), put_code(1, 1), inflated("two codes and no distance", -15);
    clear(), put_dynamic(257, 2, "001200000000000002");
    put_code(2, 2), put_code(0, 1), put(127, 7), put_code(0, 1), put(106, 7), put_code(3, 2), put_code(3, 2), put_code(2, 2);
    put_code(0, 1), inflated("one code and one distance", -15);
    /* 18 is 0, 0 is 10, 15 is 11. */
    clear(), put_dynamic(257, 1, "0012000000000000002");
    put_code(3, 2), put_code(0, 1), put(127, 7), put_code(0, 1), put(106, 7), put_code(3, 2), put_code(2, 2);
    inflated("two codes of fifteen bits", -15);
}

static void wrong_frames(void)
{
    static const struct { const char *what, *bytes; size_t len; } frames[] = {
#define FRAME(what, bytes) { what, bytes, sizeof(bytes) - 1 }
        FRAME("zlib, method 7", "\x77\x85"), FRAME("zlib, window of 64 KB", "\x88\x1c"), FRAME("zlib, check", "\x78\x00"),
        FRAME("zlib, empty", "\x78\x9c\x03\x00\x00\x00\x00\x01"), FRAME("zlib, wrong check", "\x78\x9c\x03\x00\x00\x00\x00\x02"),
        FRAME("zlib, dictionary", "\x78\xbb\x12\x34\x56\x78\x03\x00\x00\x00\x00\x01"), FRAME("zlib, smaller window", "\x48\x89\x03\x00\x00\x00\x00\x01"),
        FRAME("gzip, empty", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
        FRAME("gzip, more behind", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00more"),
        FRAME("gzip, wrong check", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x01\x00\x00\x00\x00\x00\x00\x00"),
        FRAME("gzip, wrong length", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x01\x00\x00\x00"),
        FRAME("gzip, cut", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00"),
        FRAME("gzip, method 7", "\x1f\x8b\x07\x00"), FRAME("gzip, unknown flags", "\x1f\x8b\x08\x80"),
        FRAME("gzip, all fields", "\x1f\x8b\x08\x1d\x01\x02\x03\x04\x02\x07\x04\x00xtra" "name\x00" "comment\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
        FRAME("gzip, wrong header check", "\x1f\x8b\x08\x02\x00\x00\x00\x00\x00\x03\x12\x34\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
        FRAME("compress's", "\x1f\x9d\x90"), FRAME("text", "hello"), FRAME("one byte", "\x1f"),
    };
    static const int bits[] = { 15, 31, 47, 8, 9, 0, 32 };
    for (size_t f = 0; f < COUNT(frames); f++)
        for (size_t b = 0; b < COUNT(bits); b++) {
            clear();
            put_bytes(frames[f].bytes, frames[f].len);
            inflated(frames[f].what, bits[b]);
        }
}

static void inits(void)
{
    static const int bits[] = { -100, -47, -16, -15, -9, -8, -7, -1, 0, 1, 7, 8, 15, 16, 23, 24, 31, 32, 39, 40, 47, 48, 100 };
    const int size = (int)sizeof(z_stream);
    z_stream strm = { 0 }, other = { 0 };
    for (size_t b = 0; b < COUNT(bits); b++) {
        int code = inflateInit2(&strm, bits[b]);
        printf("bits %d: %d, %s", bits[b], code, strm.msg ? strm.msg : "-");
        code = inflateEnd(&strm);
        printf(", end %d", code);
        inflateInit(&strm);
        code = inflateReset2(&strm, bits[b]);
        printf(", reset to them: %d", code);
        code = inflateEnd(&strm);
        printf(", end %d", code);
        printf(", then %d\n", inflateEnd(&strm));
        memset(&strm, 0, sizeof(strm));
        code = inflateBackInit(&strm, bits[b], window);
        printf("bits %d, back: %d\n", bits[b], code);
        if (code == Z_OK)
            inflateBackEnd(&strm);
    }
    printf("version NULL: %d\n", inflateInit_(&strm, Z_NULL, size));
    printf("version 2.0: %d\n", inflateInit_(&strm, "2.0", size));
    printf("version 1.9: %d\n", inflateInit_(&strm, "1.9", size));
    inflateEnd(&strm);
    printf("size - 1: %d\n", inflateInit_(&strm, "1.2.3", size - 1));
    printf("back, window NULL: %d, stream NULL: %d\n", inflateBackInit(&strm, 15, Z_NULL), inflateBackInit(Z_NULL, 15, window));
    printf("back, version NULL: %d\n", inflateBackInit_(&strm, 15, window, Z_NULL, size));
    uInt len;
    gz_header head;
    memset(&strm, 0, sizeof(strm));
    z_stream *const streams[] = { Z_NULL, &strm };
    for (size_t s = 0; s < COUNT(streams); s++) {
        z_stream *none = streams[s];
        printf("%s: %d %d %d", none ? "a stream of zeros" : "no stream", inflateInit(none) == (none ? Z_OK : Z_STREAM_ERROR), inflateEnd(none), inflate(none, 0));
        printf(" %d %d %d %d", inflateEnd(none), inflateReset(none), inflateReset2(none, 15), inflateResetKeep(none));
        printf(" %d %d %d %d", inflatePrime(none, 1, 1), inflateSetDictionary(none, data, 10), inflateGetDictionary(none, window, &len), inflateSync(none));
        printf(" %d %ld %d %d", inflateSyncPoint(none), inflateMark(none), inflateUndermine(none, 1), inflateValidate(none, 1));
        printf(" %d %d %d %ld", inflateCopy(&other, none), inflateGetHeader(none, &head), inflateBackEnd(none), (long)inflateCodesUsed(none));
        printf(" %d\n", inflateBack(none, in_next, Z_NULL, out_next, Z_NULL));
    }
    for (int allowed = 0; allowed < 3; allowed++) {
        int left = allowed;
        z_stream poor = { .zalloc = counted, .zfree = counted_free, .opaque = &left };
        put_whole(6, 15, 100000);
        int code = inflateInit(&poor);
        poor.next_in = in, poor.avail_in = (uInt)in_len, poor.next_out = out, poor.avail_out = 40000;
        printf("%d allocations: %d", allowed, code);
        code = inflate(&poor, Z_NO_FLUSH);
        printf(", %d, %s", code, poor.msg ? poor.msg : "-");
        code = inflateCopy(&other, &poor);
        printf(", copy %d, set the dictionary %d", code, inflateSetDictionary(&poor, data, 10));
        code = inflateEnd(&poor);
        printf(", end %d, %ld blocks left\n", code, blocks);
    }
}

/* Real streams, in pieces of each kind. */
static void pieces(void)
{
    static const uInt lens[] = { 0, 1, 100, 5000, 70000, 400000 };
    static const uInt parts[] = { 1, 7, 300, 100000 };
    for (int bits = -15; bits <= 31; bits += bits < 0 ? 30 : 16)
        for (size_t l = 0; l < COUNT(lens); l++)
            for (size_t i = 0; i < COUNT(parts); i++)
                for (size_t o = 0; o < COUNT(parts); o++)
                    for (int flush = Z_NO_FLUSH; flush <= Z_TREES; flush++) {
                        if ((lens[l] > 5000 && (parts[i] < 300 || parts[o] < 300)) || flush == Z_PARTIAL_FLUSH)
                            continue;
                        /* Level 0's stream is the same by whoever made it, and so is how its parts fall. */
                        put_whole(0, bits, lens[l]);
                        z_stream strm = { .next_in = in, .next_out = out, .zalloc = counted, .zfree = counted_free };
                        inflateInit2(&strm, bits);
                        int code = Z_OK;
                        unsigned long codes = 0, calls = 0;
                        while (code == Z_OK || (code == Z_BUF_ERROR && calls < 2000000)) {
                            uInt left = (uInt)(in + in_len - strm.next_in);
                            strm.avail_in = left < parts[i] ? left : parts[i];
                            strm.avail_out = parts[o];
                            code = inflate(&strm, flush);
                            codes = codes * 31 + (unsigned long)(code + 10) + (unsigned long)strm.data_type;
                            calls++;
                        }
                        printf("%u bytes, bits %d, by %u into %u, flush %d: %d, %lu calls, %lx, %s", lens[l], bits, parts[i], parts[o], flush, code,
                               calls, codes, strm.total_out == lens[l] && memcmp(out, data, lens[l]) == 0 ? "equal" : "NOT equal");
                        code = inflateEnd(&strm);
                        printf(", end %d, %ld blocks left\n", code, blocks);
                    }
}

/* Calls in the middle of a stream. */
static void in_the_middle(void)
{
    for (int bits = -15; bits <= 47; bits += bits < 0 ? 30 : 16) {
        z_stream strm = { .zalloc = counted, .zfree = counted_free }, copy;
        uInt len = 0;
        put_whole(0, bits == 47 ? 31 : bits, 200000);
        inflateInit2(&strm, bits);
        strm.next_in = in, strm.avail_in = (uInt)in_len, strm.next_out = out, strm.avail_out = 50000;
        int code = inflate(&strm, Z_SYNC_FLUSH);
        printf("middle, bits %d: %d, mark %lx, sync point %d", bits, code, inflateMark(&strm), inflateSyncPoint(&strm));
        code = inflateGetDictionary(&strm, window, &len);
        printf(", dictionary %d, %u, %s", code, len, memcmp(window, data + 50000 - len, len) == 0 ? "equal" : "NOT equal");
        code = inflateSetDictionary(&strm, data, 100);
        gz_header head;
        printf(", set %d, header %d, undermine %d, validate %d", code, inflateGetHeader(&strm, &head), inflateUndermine(&strm, 0), inflateValidate(&strm, 0));
        code = inflateValidate(&strm, 1);
        printf(", %d, prime 0 bits %d, 33 bits %d", code, inflatePrime(&strm, 0, 0), inflatePrime(&strm, 33, 0));
        code = inflateCopy(&copy, &strm);
        printf(", copy %d, copy to NULL %d", code, inflateCopy(Z_NULL, &strm));
        copy.next_out = out + 50000, copy.avail_out = 150000;
        code = inflate(&copy, Z_FINISH);
        printf(", the copy %d, %s", code, memcmp(out, data, 200000) == 0 ? "equal" : "NOT equal");
        printf(", end %d", inflateEnd(&copy));
        z_stream moved = strm;
        printf(", moved %d %d %d", inflate(&moved, 0), inflateReset(&moved), inflateEnd(&moved));
        Bytef *to = strm.next_out;
        strm.next_out = Z_NULL;
        printf(", nowhere %d", inflate(&strm, Z_NO_FLUSH));
        strm.next_out = to;
        code = inflateReset2(&strm, 7);
        printf(", reset to 7 bits %d, reset %d", code, inflateReset(&strm));
        code = inflateEnd(&strm);
        printf(", end %d, %ld blocks left\n", code, blocks);
    }
}

/* What is found again after bytes that are none of a stream's. */
static void synced(void)
{
    for (int level = 0; level <= 9; level += 3) {
        z_stream strm = { .next_in = data, .avail_in = 3000, .next_out = in, .avail_out = sizeof(in) };
        deflateInit2(&strm, level, Z_DEFLATED, 15, 8, Z_DEFAULT_STRATEGY);
        int code = deflate(&strm, Z_FULL_FLUSH);
        strm.avail_in = 3000;
        printf("full flush, level %d: %d", level, code);
        code = deflate(&strm, Z_FINISH);
        printf(", finish %d\n", code);
        in_len = strm.total_out;
        deflateEnd(&strm);
        in[3] ^= 0xff;
        memset(&strm, 0, sizeof(strm));
        strm.next_in = in, strm.avail_in = 2;
        inflateInit(&strm);
        strm.next_out = out, strm.avail_out = sizeof(out);
        code = inflate(&strm, Z_NO_FLUSH);
        printf("damaged, level %d: %d", level, code);
        strm.avail_in = (uInt)in_len - 2;
        code = inflateSync(&strm);
        printf(", sync %d, sync point %d", code, inflateSyncPoint(&strm));
        code = inflate(&strm, Z_FINISH);
        printf(", then %d, %s, %lu bytes, %s\n", code, strm.msg ? strm.msg : "-", strm.total_out,
               strm.total_out >= 3000 && memcmp(strm.next_out - 3000, data + 3000, 3000) == 0 ? "equal" : "NOT equal");
        strm.avail_in = 0;
        printf("no input, level %d: %d", level, inflateSync(&strm));
        strm.next_in = data, strm.avail_in = 1000;
        printf(", no marker %d, left %u\n", inflateSync(&strm), strm.avail_in);
        inflateEnd(&strm);
    }
}

/* Headers that have less room than they take, and dictionaries. */
static void given(void)
{
    Bytef name[20] = "?", comment[20] = "?", extra[20] = "?";
    gz_header sent = { .text = 1, .time = 99, .os = 3, .extra = (Bytef *)"0123456789", .extra_len = 10, .name = (Bytef *)"a long name",
        .comment = (Bytef *)"a comment", .hcrc = 1 };
    for (uInt max = 0; max < 20; max += 4) {
        z_stream strm = { .next_in = data, .avail_in = 100, .next_out = in, .avail_out = sizeof(in) };
        deflateInit2(&strm, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
        deflateSetHeader(&strm, &sent);
        deflate(&strm, Z_FINISH);
        in_len = strm.total_out;
        deflateEnd(&strm);
        gz_header head = { .extra = extra, .extra_max = max, .name = name, .name_max = max, .comment = comment, .comm_max = max };
        memset(&strm, 0, sizeof(strm));
        inflateInit2(&strm, 47);
        int code = inflateGetHeader(&strm, &head);
        strm.next_in = in, strm.avail_in = (uInt)in_len, strm.next_out = out, strm.avail_out = 200;
        printf("header into %u: %d, done %d", max, code, head.done);
        code = inflate(&strm, Z_BLOCK);
        printf(", %d, done %d, extra %u %.*s, name %.*s, comment %.*s, text %d, hcrc %d", code, head.done, head.extra_len, (int)max, extra, (int)max, name,
               (int)max, comment, head.text, head.hcrc);
        printf(", then %d\n", inflate(&strm, Z_FINISH));
        inflateEnd(&strm);
    }
    for (int wrong = 0; wrong < 2; wrong++) {
        z_stream strm = { .next_in = data, .avail_in = 5000, .next_out = in, .avail_out = sizeof(in) };
        deflateInit(&strm, 9);
        deflateSetDictionary(&strm, data, 3000);
        deflate(&strm, Z_FINISH);
        in_len = strm.total_out;
        deflateEnd(&strm);
        memset(&strm, 0, sizeof(strm));
        inflateInit(&strm);
        printf("a dictionary too early: %d", inflateSetDictionary(&strm, data, 3000));
        strm.next_in = in, strm.avail_in = (uInt)in_len, strm.next_out = out, strm.avail_out = sizeof(out);
        int code = inflate(&strm, Z_FINISH);
        printf(", inflate %d, adler %lx", code, strm.adler);
        code = inflateSetDictionary(&strm, data + wrong, 3000);
        printf(", set %d", code);
        code = inflate(&strm, Z_FINISH);
        printf(", inflate %d, %lu\n", code, strm.total_out);
        inflateEnd(&strm);
    }
}

/* Inflates all that there is, into so much room at a time. */
static int inflate_into(z_stream *strm, int code, uInt room)
{
    while (code == Z_OK && strm->total_out + room <= sizeof(out)) {
        strm->avail_out = room;
        code = inflate(strm, Z_NO_FLUSH);
    }
    return code;
}

/* What the inner loop has, which takes over where there are six bytes of input and room for the longest match: distances within the
 * output of this call, in the window of those before, around its end, and past all that there was; and codes that are none. */
static void fast(void)
{
    static const struct { unsigned distance, code, extra_bits; } ways[] = {
        { 1, 0, 0 }, { 2, 1, 0 }, { 5, 4, 1 }, { 257, 16, 7 }, { 300, 16, 7 }, { 385, 17, 7 }, { 513, 18, 8 }, { 4097, 24, 11 }, { 24577, 29, 13 }, { 32768, 29, 13 }
    };
    static const unsigned firsts[] = { [0] = 1, [1] = 2, [4] = 5, [16] = 257, [17] = 385, [18] = 513, [24] = 4097, [29] = 24577 };
    static const int windows[] = { -8, -9, -10, -13, -15 };
    static const uInt rooms[] = { 258, 300, 1000, (uInt)sizeof(out) };
    for (size_t w = 0; w < COUNT(ways); w++)
        for (unsigned before = ways[w].distance - 1; before <= ways[w].distance; before++) {
            clear(), put(1, 1), put(1, 2);
            for (unsigned n = 0; n < before; n++)
                put_code(0x30 + n * 31 % 97, 8);
            for (int match = 0; match < 20; match++) {
                put_code(0xc5, 8), put_code(ways[w].code, 5), put(ways[w].distance - firsts[ways[w].code], ways[w].extra_bits);
                put_code(0x30 + (unsigned)match, 8);
            }
            put_code(0, 7);
            PUT_BYTES("sixteen of others");
            for (size_t b = 0; b < COUNT(windows); b++)
                for (size_t r = 0; r < COUNT(rooms); r++) {
                    z_stream strm = { .next_in = in, .avail_in = (uInt)in_len, .next_out = out, .zalloc = counted, .zfree = counted_free };
                    int code = inflate_into(&strm, inflateInit2(&strm, windows[b]), rooms[r]);
                    say(text("%u bytes, then 258 from %u back, bits %d, into %u", before, ways[w].distance, windows[b], rooms[r]), &strm, code);
                    printf("left %u, out %lu, crc %lx", strm.avail_in, strm.total_out, crc32(0, out, (uInt)strm.total_out));
                    code = inflateEnd(&strm);
                    printf(", end %d, %ld blocks left\n", code, blocks);
                }
        }
    static const char behind[300];
#define FAST(what) put_bytes(behind, sizeof(behind)), inflated("in the inner loop: " what, -15)
    clear(), put(1, 1), put(1, 2), put_code(0x30 + 'w', 8), put_code(0xc6, 8), FAST("length code 286");
    clear(), put(1, 1), put(1, 2), put_code(0x30 + 'w', 8), put_code(0xc7, 8), FAST("length code 287");
    clear(), put(1, 1), put(1, 2), put_code(0x30 + 'w', 8), put_code(1, 7), put_code(30, 5), FAST("distance code 30");
    clear(), put(1, 1), put(1, 2), put_code(0x30 + 'w', 8), put_code(1, 7), put_code(29, 5), put(0x1fff, 13), FAST("match too far back");
    /* Codes of more bits than the first table looks up: literals 0 to 13 have 1 to 14, the end and the length 3 have 15, and distance codes
     * 0 to 14 have 1 to 15, the last one 15 as well. Of their own code, 1 to 15 have 4 bits, from 0 on, 0 and 18 have 5, 30 and 31. */
    for (unsigned bits = 9; bits < 16; bits++) {
        clear(), put_dynamic(258, 16, "0055444444444444444");
        for (unsigned length = 1; length < 15; length++)
            put_code(length - 1, 4);
        put_code(31, 5), put(138 - 11, 7), put_code(31, 5), put(256 - 14 - 138 - 11, 7), put_code(14, 4), put_code(14, 4);
        for (unsigned length = 1; length < 16; length++)
            put_code(length - 1, 4);
        put_code(14, 4);
        for (unsigned n = 0; n < 300; n++)
            put_code((1u << (1 + n % 14)) - 2, 1 + n % 14);
        for (unsigned n = 0; n < 40; n++) {
            put_code(0x7fff, 15);
            if (bits < 15)
                put_code((1u << (bits + 1)) - 2, bits + 1);
            else
                put_code(0x7fff, 15);
            put(n, bits / 2 - 1);
        }
        put_code(0x7ffe, 15);
        FAST("codes of many bits");
    }
    for (int level = 1; level <= 9; level++) {
        put_whole(level, -15, 300000);
        for (size_t r = 0; r < COUNT(rooms); r++) {
            z_stream strm = { .next_in = in, .avail_in = (uInt)in_len, .next_out = out };
            int code = inflate_into(&strm, inflateInit2(&strm, -15), rooms[r]);
            printf("level %d into %u: %d, %s\n", level, rooms[r], code,
                   strm.total_out == 300000 && memcmp(out, data, 300000) == 0 ? "equal" : "NOT equal");
            inflateEnd(&strm);
        }
    }
}

static void backs(void)
{
    put_whole(0, -15, 300000);
    for (out_refused = 0; out_refused < 2; out_refused++)
        for (uInt cut = 0; cut < 3000; cut += 1500) {
            uInt left = (uInt)in_len - cut;
            in_len -= cut;
            Bytef *to = out;
            z_stream strm = { 0 };
            inflateBackInit(&strm, 15, window);
            int code = inflateBack(&strm, in_next, &left, out_next, &to);
            printf("back, refused %d, cut by %u: %d, out %td, next_in %s, %s\n", out_refused, cut, code, to - out, strm.next_in ? "is" : "NULL",
                   memcmp(out, data, (size_t)(to - out)) == 0 ? "equal" : "NOT equal");
            inflateBackEnd(&strm);
            in_len += cut;
        }
    out_refused = 0;
    for (int level = 1; level <= 9; level++) {
        put_whole(level, -15, 300000);
        uInt left = (uInt)in_len;
        Bytef *to = out;
        z_stream strm = { 0 };
        inflateBackInit(&strm, 15, window);
        int code = inflateBack(&strm, in_next, &left, out_next, &to);
        printf("back, level %d: %d, %s, undermine %d\n", level, code, memcmp(out, data, 300000) == 0 ? "equal" : "NOT equal", inflateUndermine(&strm, 1));
        inflateBackEnd(&strm);
    }
}

int main(void)
{
    make_data();
    inits();
    wrong_blocks();
    wrong_frames();
    pieces();
    in_the_middle();
    synced();
    given();
    fast();
    backs();
    return 0;
}
