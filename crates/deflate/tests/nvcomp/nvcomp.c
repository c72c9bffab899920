/* Stands in for libcuda.so.1 and libnvcomp.so.6 at once: the functions that are used, as the manuals describe them. The GPU's memory is the
 * process's, shifted so that nobody reads it by accident; what a stream is given it does when it is waited for. Each call can fail. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What is there now (memory of both kinds), and calls so far; the call of this number fails. */
int contexts, streams, allocations, calls, fail_at;
/* Launched batches, and the bodies of the last one. */
int launches, launched;
/* Algorithm of the last launch. */
int algorithm;

/* What one of the GPU's addresses is more than the process's. */
#define SHIFT ((uintptr_t)1 << 60)
#define CALL                                                                                                                               \
    if (++calls == fail_at)                                                                                                                \
    return 999

typedef struct {
    int algorithm;
    char reserved[60];
} options_t;

/* Rows, a pitch apart on each side. */
typedef struct {
    uintptr_t to, from;
    size_t len, count, to_pitch, from_pitch;
} copy_t;

/* As cuda.h has them. */
typedef struct {
    size_t x, y;
    unsigned memory;
    void *host;
    uintptr_t device;
    void *array;
    size_t pitch;
} side_t;

typedef struct {
    side_t from, to;
    size_t width, height;
} rows_t;

typedef struct {
    const uintptr_t *from;
    const size_t *from_lens;
    size_t count;
    const uintptr_t *to;
    size_t *to_lens;
    int *statuses;
} batch_t;

typedef struct {
    int is_batch;
    copy_t copy;
    void *staged;
    batch_t batch;
} work_t;

typedef struct {
    work_t work[256];
    int count;
} stream_t;

static void *current;
static int context;

int cuInit(unsigned flags) {
    CALL;
    return flags != 0;
}

int cuDeviceGet(int *device, int ordinal) {
    CALL;
    *device = 7;
    return ordinal != 0;
}

int cuDeviceGetName(char *name, int len, int device) {
    strncpy(name, "a stand-in", len);
    return device != 7;
}

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    CALL;
    return device != 7 || flags != 4;
}

int cuDevicePrimaryCtxRetain(void **to, int device) {
    CALL;
    *to = &context;
    contexts += 1;
    return device != 7;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    CALL;
    contexts -= 1;
    return device != 7;
}

int cuCtxSetCurrent(void *to) {
    CALL;
    current = to;
    return 0;
}

int cuStreamCreate(void **stream, unsigned flags) {
    CALL;
    if (current == NULL)
        return 1;
    *stream = calloc(1, sizeof(stream_t));
    streams += 1;
    return flags != 0;
}

int cuStreamDestroy_v2(void *stream) {
    stream_t *s = stream;
    for (int i = 0; i < s->count; i++)
        free(s->work[i].staged);
    free(stream);
    streams -= 1;
    CALL;
    return current == NULL;
}

int cuMemAlloc_v2(uintptr_t *to, size_t len) {
    CALL;
    if (current == NULL || len == 0)
        return 1;
    *to = (uintptr_t)aligned_alloc(256, (len + 255) / 256 * 256) + SHIFT;
    allocations += 1;
    return 0;
}

int cuMemFree_v2(uintptr_t at) {
    free((void *)(at - SHIFT));
    allocations -= 1;
    CALL;
    return current == NULL;
}

static int add(stream_t *s, work_t work) {
    if (current == NULL || s->count == 256)
        return 1;
    s->work[s->count++] = work;
    return 0;
}

int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t len, void *stream) {
    CALL;
    void *staged = malloc(len);
    memcpy(staged, from, len);
    return add(stream, (work_t){.copy = {to - SHIFT, (uintptr_t)staged, len, 1, 0, 0}, .staged = staged});
}

int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t len, void *stream) {
    CALL;
    return add(stream, (work_t){.copy = {(uintptr_t)to, from - SHIFT, len, 1, 0, 0}});
}

int cuMemHostAlloc(void **to, size_t len, unsigned flags) {
    CALL;
    if (current == NULL || len == 0 || flags != 0)
        return 1;
    *to = malloc(len);
    memset(*to, 0xA5, len);
    allocations += 1;
    return 0;
}

int cuMemFreeHost(void *at) {
    free(at);
    allocations -= 1;
    CALL;
    return current == NULL;
}

/* Where a side is in the process's memory; 0: it is none. */
static uintptr_t place(const side_t *side) {
    if (side->x != 0 || side->y != 0 || side->array != NULL)
        return 0;
    switch (side->memory) {
    case 1:
        return side->device == 0 ? (uintptr_t)side->host : 0;
    case 2:
        return side->host == NULL ? side->device - SHIFT : 0;
    default:
        return 0;
    }
}

/* Of page-locked memory: what is in it when the stream is waited for. */
int cuMemcpy2DAsync_v2(const rows_t *rows, void *stream) {
    CALL;
    uintptr_t to = place(&rows->to), from = place(&rows->from);
    if (to == 0 || from == 0 || rows->from.memory == rows->to.memory)
        return 1;
    if (rows->width > rows->to.pitch || rows->width > rows->from.pitch)
        return 1;
    return add(stream, (work_t){.copy = {to, from, rows->width, rows->height, rows->to.pitch, rows->from.pitch}});
}

int nvcompBatchedDeflateCompressGetMaxOutputChunkSize(size_t len, options_t options, size_t *to) {
    CALL;
    *to = len + 5 * (len / 65535 + 1);
    return options.algorithm > 5;
}

int nvcompBatchedDeflateCompressGetTempSizeSync(uintptr_t pointers, uintptr_t lens, size_t count, size_t len_max, options_t options,
                                                size_t *to, size_t total, void *stream) {
    CALL;
    stream_t *s = stream;
    if (pointers < SHIFT || lens < SHIFT || len_max != 65536 || total != count * len_max || s->count != 0)
        return 10;
    for (size_t i = 0; i < count; i++)
        if (((const uintptr_t *)(pointers - SHIFT))[i] < SHIFT || ((const size_t *)(lens - SHIFT))[i] != len_max)
            return 10;
    *to = options.algorithm == 0 ? 0 : 1000 * count;
    return 0;
}

int nvcompBatchedDeflateCompressAsync(uintptr_t from, uintptr_t from_lens, size_t len_max, size_t count, uintptr_t temp, size_t temp_len,
                                      uintptr_t to, uintptr_t to_lens, options_t options, uintptr_t statuses, void *stream) {
    CALL;
    for (int i = 0; i < 60; i++)
        if (options.reserved[i] != 0)
            return 10;
    if (len_max != 65536 || temp < SHIFT || (options.algorithm != 0 && temp_len < 1000 * count) || statuses < SHIFT)
        return 10;
    launches += 1, launched = count, algorithm = options.algorithm;
    batch_t batch = {
        .from = (void *)(from - SHIFT),
        .from_lens = (void *)(from_lens - SHIFT),
        .count = count,
        .to = (void *)(to - SHIFT),
        .to_lens = (void *)(to_lens - SHIFT),
        .statuses = (void *)(statuses - SHIFT),
    };
    return add(stream, (work_t){.is_batch = 1, .batch = batch});
}

/* In stored blocks. A body that begins with '!' cannot be compressed, and one that begins with '?' is said to have become more than there is
 * room for. */
static void compress(const batch_t *batch, size_t i) {
    const unsigned char *from = (void *)(batch->from[i] - SHIFT);
    unsigned char *begin = (void *)(batch->to[i] - SHIFT), *at = begin;
    size_t len = batch->from_lens[i];
    int is_wrong = (batch->from[i] | batch->to[i]) % 8 != 0 || len == 0 || len > 65536 || *from == '!';
    batch->statuses[i] = is_wrong ? 19 : 0;
    batch->to_lens[i] = is_wrong ? 100 : (size_t)1 << 40;
    if (is_wrong || *from == '?')
        return;
    while (len > 0) {
        size_t block = len < 65535 ? len : 65535;
        *at++ = block == len;
        *at++ = block & 255;
        *at++ = block >> 8;
        *at++ = ~block & 255;
        *at++ = ~block >> 8 & 255;
        memcpy(at, from, block);
        at += block, from += block, len -= block;
    }
    batch->to_lens[i] = at - begin;
}

int cuStreamSynchronize(void *stream) {
    stream_t *s = stream;
    CALL;
    if (current == NULL)
        return 1;
    for (int i = 0; i < s->count; i++) {
        work_t *work = &s->work[i];
        if (work->is_batch)
            for (size_t j = 0; j < work->batch.count; j++)
                compress(&work->batch, j);
        else
            for (size_t j = 0; j < work->copy.count; j++)
                memcpy((void *)(work->copy.to + j * work->copy.to_pitch), (const void *)(work->copy.from + j * work->copy.from_pitch),
                       work->copy.len);
        free(work->staged);
    }
    s->count = 0;
    return 0;
}
