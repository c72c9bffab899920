/* What a program sees of the gz* functions on a file, in a table as deflate.c's.
 * usage: gz FOLDER */

#include "table.h"

#include <fcntl.h>
#include <sys/stat.h>

static char path[4096];
static char buffer[DATA_LEN + 1];

static void answer(const char *what, gzFile file, long code)
{
    int error = 0;
    const char *message = file ? gzerror(file, &error) : NULL;
    const char *colon = message ? strrchr(message, ':') : NULL;
    printf("%s: %ld, error %d%s, eof %d\n", what, code, error, colon ? colon : "", file ? gzeof(file) : 0);
}

static void put_plain(const char *mode, const void *bytes, size_t len)
{
    FILE *file = fopen(path, mode);
    if (!file || fwrite(bytes, 1, len, file) != len || fclose(file) != 0)
        exit(2);
}

/* Makes a file of gzip members. */
static void put_members(const char *mode, unsigned len, int members)
{
    put_plain("w", "", 0);
    for (int member = 0; member < members; member++) {
        gzFile file = gzopen(path, mode);
        gzwrite(file, data, len);
        gzclose(file);
    }
}

static void modes(void)
{
    static const char *const modes[] = { "r", "rb", "w", "wb", "a", "w0", "w1", "w9", "w6h", "w6f", "w6R", "w6F", "wT", "rT", "w+", "r+", "rw", "", "x",
        "wx", "we", "re", "ae", "w10", "b", "wb9T", "rd", "rG", "wG" };
    for (size_t m = 0; m < COUNT(modes); m++) {
        put_members("w", 1000, 1);
        gzFile file = gzopen(path, modes[m]);
        printf("mode %s: %s", modes[m], file ? "opened" : "refused");
        if (file) {
            int is_read = strchr(modes[m], 'r') != NULL;
            printf(", direct %d, at %ld", gzdirect(file), (long)gztell(file));
            printf(", %d", is_read ? gzread(file, buffer, 500) : gzwrite(file, data, 500));
            printf(", wrong way %d", is_read ? gzwrite(file, data, 500) : gzread(file, buffer, 500));
            printf(", close %d", gzclose(file));
            file = gzopen(path, "r");
            int len = gzread(file, buffer, 5000);
            printf(", read back %d, %s, close %d", len, memcmp(buffer, data, 500) == 0 ? "equal" : "NOT equal", gzclose(file));
        }
        puts("");
    }
    printf("path NULL: %d, mode NULL: %d\n", gzopen(NULL, "r") != NULL, gzopen("/nowhere/at/all", "w") != NULL);
    printf("descriptor -1: %d\n", gzdopen(-1, "w") != NULL);
    gzFile file = gzdopen(open(path, O_RDONLY), "r");
    printf("descriptor: %d", gzread(file, buffer, 100));
    printf(", close %d\n", gzclose(file));
}

static void nothing(void)
{
    int error = 0;
    printf("NULL: %d %d", gzread(NULL, buffer, 1), gzwrite(NULL, buffer, 1));
    printf(" %zu %zu", gzfread(buffer, 1, 1, NULL), gzfwrite(buffer, 1, 1, NULL));
    printf(" %d %d %d %d", gzputc(NULL, 'w'), (gzgetc)(NULL), gzputs(NULL, "w"), gzgets(NULL, buffer, 9) != NULL);
    printf(" %d %d %d %d", gzungetc('w', NULL), gzflush(NULL, Z_FINISH), gzsetparams(NULL, 1, 0), gzbuffer(NULL, 9000));
    printf(" %ld %ld %ld %d", (long)gzseek(NULL, 0, SEEK_SET), (long)gztell(NULL), (long)gzoffset(NULL), gzrewind(NULL));
    printf(" %d %d %d %d %d", gzeof(NULL), gzdirect(NULL), gzclose(NULL), gzclose_r(NULL), gzclose_w(NULL));
    printf(" %d %d\n", gzerror(NULL, &error) != NULL, gzprintf(NULL, "w"));
    gzclearerr(NULL);
}

static void writes(void)
{
    static const int flushes[] = { -1, Z_NO_FLUSH, Z_PARTIAL_FLUSH, Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_FINISH, Z_BLOCK, 9 };
    for (int level = 0; level <= 9; level += 3) {
        gzFile file = gzopen(path, text("w%d", level));
        answer("buffer", file, gzbuffer(file, 64));
        answer("write", file, gzwrite(file, data, 100000));
        answer("buffer too late", file, gzbuffer(file, 40000));
        answer("write nothing", file, gzwrite(file, data, 0));
        answer("putc", file, gzputc(file, 'w'));
        answer("puts", file, gzputs(file, "eir"));
        answer("puts nothing", file, gzputs(file, ""));
        answer("printf", file, gzprintf(file, "%s %d %5.2f\n", "gate", 42, 1.5));
        answer("printf of much", file, gzprintf(file, "%99999s", "w"));
        answer("fwrite", file, (long)gzfwrite(data, 100, 30, file));
        answer("fwrite, no size", file, (long)gzfwrite(data, 0, 30, file));
        answer("tell", file, (long)gztell(file));
        for (size_t f = 0; f < COUNT(flushes); f++) {
            answer(text("flush %d", flushes[f]), file, gzflush(file, flushes[f]));
            answer(text("write after flush %d", flushes[f]), file, gzwrite(file, data, 5000));
        }
        answer("params", file, gzsetparams(file, 1, Z_HUFFMAN_ONLY));
        answer("params that are wrong", file, gzsetparams(file, 50, 0));
        answer("write", file, gzwrite(file, data, 50000));
        answer("seek back", file, (long)gzseek(file, 5, SEEK_SET));
        answer("seek from the end", file, (long)gzseek(file, 5, SEEK_END));
        answer("rewind", file, gzrewind(file));
        answer("getc", file, gzgetc(file));
        answer("ungetc", file, gzungetc('w', file));
        answer("gets", file, gzgets(file, buffer, 10) != NULL);
        answer("offset", file, gzoffset(file) > 0);
        answer("seek on", file, (long)gzseek(file, 300000, SEEK_SET));
        answer("close as a reader", file, gzclose_r(file));
        answer("close", NULL, gzclose_w(file));
        file = gzopen(path, "r");
        int len = gzread(file, buffer, sizeof(buffer));
        answer(text("read back, crc %lx", crc32(0, (Bytef *)buffer, (uInt)len)), file, len);
        answer("close as a writer", file, gzclose_w(file));
        answer("close", NULL, gzclose_r(file));
    }
}

static void reads(const char *what)
{
    for (unsigned size = 0; size <= 100000; size = size * 10 + 100) {
        gzFile file = gzopen(path, "r");
        printf("%s, buffer of %u: %d\n", what, size, size ? gzbuffer(file, size) : 0);
        int first = gzgetc(file);
        answer("getc", file, first);
        if (first != -1)
            answer("ungetc", file, gzungetc('W', file));
        answer("gets", file, gzgets(file, buffer, 20) != NULL);
        printf("%.20s\n", buffer);
        answer("gets, no room", file, gzgets(file, buffer, 0) != NULL);
        answer("gets, one byte", file, gzgets(file, buffer, 1) != NULL);
        answer("read", file, gzread(file, buffer, 700));
        answer("tell", file, (long)gztell(file));
        answer("seek on", file, (long)gzseek(file, 1000, SEEK_CUR));
        answer("seek back", file, (long)gzseek(file, 10, SEEK_SET));
        answer("getc", file, gzgetc(file));
        answer("seek before the start", file, (long)gzseek(file, -100, SEEK_CUR));
        answer("direct", file, gzdirect(file));
        answer("fread", file, (long)gzfread(buffer, 7, 100, file));
        answer("fread, too much", file, (long)gzfread(buffer, (size_t)1 << 40, (size_t)1 << 40, file));
        gzclearerr(file);
        answer("rewind", file, gzrewind(file));
        int len = gzread(file, buffer, sizeof(buffer));
        answer(text("read all, crc %lx", crc32(0, (Bytef *)buffer, len > 0 ? (uInt)len : 0)), file, len);
        answer("close", NULL, gzclose(file));
        file = gzopen(path, "r");
        answer("read all again", file, gzread(file, buffer, sizeof(buffer)));
        answer("read on", file, gzread(file, buffer, 10));
        answer("getc", file, gzgetc(file));
        answer("write", file, gzwrite(file, "w", 1));
        gzclearerr(file);
        answer("getc, cleared", file, gzgetc(file));
        answer("close", NULL, gzclose(file));
    }
}

/* Reads to the end, and only there asks whether all went well. */
static void reads_then_asks(const char *what)
{
    static const char *const readers[] = { "read", "gets", "getc", "fread" };
    for (size_t r = 0; r < COUNT(readers); r++) {
        gzFile file = gzopen(path, "r");
        long all = 0, got = 1;
        while (got > 0) {
            switch (r) {
            case 0: got = gzread(file, buffer, 777); break;
            case 1: got = gzgets(file, buffer, 777) ? (long)strlen(buffer) : 0; break;
            case 2: got = gzgetc(file) >= 0; break;
            case 3: got = (long)gzfread(buffer, 1, 777, file); break;
            }
            all += got > 0 ? got : 0;
        }
        answer(text("%s, %s to the end: %ld bytes, then", what, readers[r], all), file, got);
        answer("close", NULL, gzclose(file));
    }
}

static void positions(void)
{
    static const struct { const char *what; long by; int whence; } seeks[] = {
        { "to 100", 100, SEEK_SET }, { "on by 50", 50, SEEK_CUR }, { "on by nothing", 0, SEEK_CUR }, { "back by 5", -5, SEEK_CUR },
        { "to 3", 3, SEEK_SET }, { "on by 5", 5, SEEK_CUR } };
    for (int read = 0; read <= 20; read += 5) {
        put_members("w6", 10, 1);
        gzFile file = gzopen(path, "r");
        answer(text("read %d of 10", read), file, gzread(file, buffer, (unsigned)read));
        for (size_t s = 0; s < COUNT(seeks); s++) {
            answer(seeks[s].what, file, (long)gzseek(file, seeks[s].by, seeks[s].whence));
            answer("tell", file, (long)gztell(file));
        }
        answer("getc", file, gzgetc(file));
        answer("tell", file, (long)gztell(file));
        answer("close", NULL, gzclose(file));
    }
    for (int wrong = 0; wrong < 2; wrong++) {
        gzFile file = gzopen(path, "w");
        answer("write", file, gzwrite(file, data, 10));
        if (wrong)
            answer("read", file, gzread(file, buffer, 1));
        for (size_t s = 0; s < COUNT(seeks); s++) {
            answer(seeks[s].what, file, (long)gzseek(file, seeks[s].by, seeks[s].whence));
            answer("tell", file, (long)gztell(file));
        }
        answer("write", file, gzwrite(file, data, 1));
        answer("tell", file, (long)gztell(file));
        answer("close", NULL, gzclose(file));
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    snprintf(path, sizeof(path), "%s/file.gz", argv[1]);
    make_data();
    nothing();
    modes();
    writes();
    put_members("w6", 300000, 1), reads("one member");
    put_members("a6", 50000, 3), reads("three members");
    put_members("a0", 100, 3), put_plain("a", "trailing", 8), reads("trailing bytes");
    put_members("w6", 0, 1), reads("an empty member");
    put_plain("w", data, 50000), reads("plain");
    put_plain("w", data, 0), reads("empty");
    /* Level 0: where it is cut is then the same place. */
    for (int cut = 1; cut <= 10001; cut += 10000) {
        put_members("w0", 50000, 1);
        if (truncate(path, 50000 - cut) != 0)
            return 2;
        reads(text("cut by %d", cut));
    }
    static const int cuts[] = { 0, 1, 5, 1000 };
    for (size_t c = 0; c < COUNT(cuts); c++) {
        put_members("w0", 50000, 1);
        struct stat stat_of;
        if (stat(path, &stat_of) != 0 || truncate(path, stat_of.st_size - cuts[c]) != 0)
            return 2;
        reads_then_asks(text("cut by %d", cuts[c]));
    }
    positions();
    unlink(path);
    return 0;
}
