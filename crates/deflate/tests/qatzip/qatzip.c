/* Stands in for libqatzip.so.3: the five functions, as qatzip.h describes them, with a "card" that stores. It says what was asked of it
 * and does what `fault` says. */

#include <stdlib.h>
#include <string.h>

typedef struct {
    long hw_session_stat;
    int thd_sess_stat;
    void *internal;
    unsigned long total_in;
    unsigned long total_out;
} session_t;

typedef struct {
    int direction;
    unsigned comp_lvl;
    unsigned char comp_algorithm;
    unsigned max_forks;
    unsigned char sw_backup;
    unsigned hw_buff_sz;
    unsigned strm_buff_sz;
    unsigned input_sz_thrshold;
    unsigned req_cnt_thrshold;
    unsigned wait_cnt_thrshold;
    int polling_mode;
    unsigned is_sensitive_mode;
    int huffman_hdr;
    int data_fmt;
} params_t;

/* Begun and ended, and bodies that the card was given. */
int inits, closes, setups, teardowns, bodies;
/* Codes of qzInit and of qzSetupSessionDeflate, and a session's state after it. */
int init_code, setup_code, setup_state;
/* Of qzCompress: a code, or what it says of its input and output. */
int compress_code, taken_less, len_more;
/* Set: it answers QZ_FAIL and keeps the output, and the next qzInit writes there, which `late` counts. */
int keeps_output, late;

static unsigned char *kept;
static unsigned kept_len;

int qzInit(session_t *session, unsigned char sw_backup) {
    if (session == NULL || sw_backup != 0)
        return -1;
    if (kept != NULL) {
        memset(kept, 0xEE, kept_len);
        kept = NULL;
        late += 1;
    }
    inits += init_code == 0 || init_code == 1;
    return init_code;
}

int qzSetupSessionDeflate(session_t *session, params_t *params) {
    const params_t wanted = {
        .comp_lvl = params->comp_lvl,
        .comp_algorithm = 8,
        .hw_buff_sz = 65536,
        .strm_buff_sz = 65536,
        .input_sz_thrshold = 128,
        .req_cnt_thrshold = 16,
        .wait_cnt_thrshold = 8,
        .data_fmt = 3,
    };
#define SAME(field) (params->field == wanted.field)
    if (!(SAME(direction) && SAME(comp_algorithm) && SAME(max_forks) && SAME(sw_backup) && SAME(hw_buff_sz) && SAME(strm_buff_sz) &&
          SAME(input_sz_thrshold) && SAME(req_cnt_thrshold) && SAME(wait_cnt_thrshold) && SAME(polling_mode) &&
          SAME(is_sensitive_mode) && SAME(huffman_hdr) && SAME(data_fmt)))
        return -1;
    if (setup_code != 0)
        return setup_code;
    session->hw_session_stat = setup_state;
    session->internal = malloc(sizeof(params_t));
    memcpy(session->internal, params, sizeof(params_t));
    setups += 1;
    return 0;
}

/* Each piece in stored blocks; of the last one the last block ends the stream. */
static unsigned store(const unsigned char *from, unsigned len, unsigned char *to) {
    unsigned char *at = to;
    while (len > 0) {
        unsigned block = len < 65535 ? len : 65535;
        *at++ = block == len;
        *at++ = block & 255;
        *at++ = block >> 8;
        *at++ = ~block & 255;
        *at++ = ~block >> 8 & 255;
        memcpy(at, from, block);
        at += block, from += block, len -= block;
    }
    return at - to;
}

/* The level that its session was set up with, or 0. */
int level;

int qzCompress(session_t *session, const unsigned char *from, unsigned *from_len, unsigned char *to, unsigned *to_len, unsigned last) {
    params_t *params = session->internal;
    unsigned pieces = (*from_len + 65535) / 65536;
    bodies += 1;
    if (params == NULL || last != 1 || *from_len < params->input_sz_thrshold || pieces > params->req_cnt_thrshold ||
        *to_len < *from_len + *from_len / 8 + pieces * 1024)
        return -1;
    level = params->comp_lvl;
    if (keeps_output) {
        kept = to, kept_len = *to_len;
        *from_len = *to_len = 0;
        return -2;
    }
    if (compress_code != 0) {
        *from_len = *to_len = 0;
        return compress_code;
    }
    *to_len = store(from, *from_len, to) + len_more;
    *from_len -= taken_less;
    session->total_in += *from_len;
    session->total_out += *to_len;
    return 0;
}

int qzTeardownSession(session_t *session) {
    teardowns += session->internal != NULL;
    free(session->internal);
    session->internal = NULL;
    return 0;
}

#ifndef INCOMPLETE
int qzClose(session_t *session) {
    closes += 1;
    return session == NULL ? -1 : 0;
}
#endif
