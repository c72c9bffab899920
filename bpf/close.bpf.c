// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* The last numbers of every TCP connection, taken as it closes, into a ring buffer; and which end opened it.
 * User space: crates/linux/src/bpf/close.rs.
 *
 * Counted, so that nothing is lost silently: `seen` closes are `ring_failures` plus the records in the ring. A connection
 * that becomes a TIME-WAIT mini-socket, or an orphan in FIN-WAIT-2 that becomes one, closes here at that moment: its
 * numbers do not change afterwards. */
#include "fill.h"
#include "filter.h"
#include "namespaces.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* Counters of one CPU. A close in process context can be interrupted by one in a softirq, so they are added to
 * atomically although no other CPU does. */
struct wg_close_count {
	__u64 seen;
	__u64 ring_failures;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wg_close_count);
} close_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 12); /* set by the loader */
} closes SEC(".maps");

/* The reader is woken only when so many bytes wait; it comes by a timer, too. One wake-up per close would cost more than
 * the close. Set by the loader. */
const volatile __u64 wake_bytes = 1 << 11;

/* Which closes are wanted; the others are not counted, either. */
struct wg_close_filter {
	struct wg_filter sockets;
	__u32 namespaces_used; /* not 0: only those in `namespaces` */
	__u32 reserved;
};

struct wg_close_filter filter SEC(".data.filter");

/* What the pass over the sockets that were open before (wg_arm) did. Written by one pass at a time. */
struct wg_arm_count {
	__u64 armed;
	__u64 armed_before;
	__u64 failures;
	__s64 error; /* the last, as a negative errno */
	__u64 only;  /* not 0: just the socket with this cookie, even a listener; asks whether this kernel can */
};

struct wg_arm_count arm_count SEC(".data.arm");

static __always_inline void remember(struct bpf_sock_ops *ctx, __u8 direction)
{
	struct bpf_sock *sk = ctx->sk;
	struct wg_conn *conn;

	/* Another program may have asked for other callbacks. */
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	if (!sk)
		return;
	conn = bpf_sk_storage_get(&conns, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (conn)
		conn->direction = direction;
}

static __always_inline int wanted(const struct tcp_sock *tp)
{
	const struct sock_common *skc = &tp->inet_conn.icsk_inet.sk.__sk_common;
	struct wg_sample ends;

	if (!filter_wants_port(&filter.sockets, skc->skc_num))
		return 0;
	if (filter.namespaces_used && !is_in_namespaces(skc))
		return 0;
	if (!filter.sockets.wanted_used && !filter.sockets.unwanted_used)
		return 1;
	fill_ends(&ends, skc);
	return filter_wants_remote(&filter.sockets, &ends);
}

/* Our FIN is a segment like another to the kernel's rate estimator: its acknowledgement is a sample of one packet in one
 * round trip, not application-limited, and it would stand as the connection's last. So the last sample of data is noted
 * when the connection leaves ESTABLISHED, if everything sent by then is acknowledged. */
static __always_inline void keep_rate(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct wg_conn *conn;
	struct tcp_sock *tp;

	tp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
	if (!tp || tp->write_seq != tp->snd_una)
		return;
	conn = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (!conn)
		return;
	conn->rate_kept = 1;
	conn->rate_app_limited = BPF_CORE_READ_BITFIELD(tp, rate_app_limited);
	conn->rate_delivered = tp->rate_delivered;
	conn->rate_interval_us = tp->rate_interval_us;
	conn->rate_data_segs_out = tp->data_segs_out;
}

static __always_inline void use_kept_rate(struct wg_sample *s, const struct wg_conn *conn)
{
	if (!conn->rate_kept || conn->rate_data_segs_out != s->data_segs_out)
		return;
	s->flags &= ~WG_F_APP_LIMITED;
	if (conn->rate_app_limited)
		s->flags |= WG_F_APP_LIMITED;
	s->delivery_rate = 0;
	if (conn->rate_delivered && conn->rate_interval_us)
		s->delivery_rate = (__u64)conn->rate_delivered * s->snd_mss * USEC_PER_SEC / conn->rate_interval_us;
}

static __always_inline void closed(struct bpf_sock_ops *ctx, __u8 from)
{
	struct wg_close_count *count;
	struct bpf_sock *sk = ctx->sk;
	struct wg_sample *s;
	struct tcp_sock *tp;
	struct wg_conn *conn;
	__u32 zero = 0;

	count = bpf_map_lookup_elem(&close_counts, &zero);
	if (!sk || !count)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp && !wanted(tp))
		return;
	__sync_fetch_and_add(&count->seen, 1);
	s = tp ? bpf_ringbuf_reserve(&closes, sizeof(*s), 0) : 0;
	if (!s) {
		__sync_fetch_and_add(&count->ring_failures, 1);
		return;
	}
	if (!fields)
		fields = known_fields();
	__builtin_memset(s, 0, sizeof(*s));
	s->len = sizeof(*s);
	s->kind = WG_CLOSE;
	s->state = from;
	s->given = fields;
	s->cookie = bpf_get_socket_cookie(ctx);
	s->time_ns = bpf_ktime_get_boot_ns();
	s->netns = tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net->ns.inum;
	fill_ends(s, &tp->inet_conn.icsk_inet.sk.__sk_common);
	fill_sock(s, tp);
	fill_tcp(s, tp);
	conn = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (conn) {
		fill_conn(s, conn);
		use_kept_rate(s, conn);
	}
	bpf_ringbuf_submit(s, bpf_ringbuf_query(&closes, BPF_RB_AVAIL_DATA) >= wake_bytes ? BPF_RB_FORCE_WAKEUP :
										       BPF_RB_NO_WAKEUP);
}

/* Never writes `reply`: other programs' answers stand. */
SEC("sockops")
int wg_sockops(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		remember(ctx, WG_CONNECTED);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		remember(ctx, WG_ACCEPTED);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ctx->args[1] == BPF_TCP_CLOSE && ctx->args[0] != BPF_TCP_CLOSE && ctx->args[0] != BPF_TCP_LISTEN)
			closed(ctx, ctx->args[0]);
		else if (ctx->args[0] == BPF_TCP_ESTABLISHED)
			keep_rate(ctx);
		break;
	}
	return 1;
}

/* Turns the close callback on for the sockets that were open before the attachment. Linux 6.12 and later. */
SEC("iter/tcp")
int wg_arm(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct tcp_sock *tp;
	int flags, error;

	if (!skc)
		return 0;
	if (arm_count.only ? bpf_get_socket_cookie(skc) != arm_count.only :
			     skc->skc_state == WG_TCP_LISTEN || skc->skc_state == WG_TCP_CLOSE)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	flags = tp->bpf_sock_ops_cb_flags;
	if (flags & BPF_SOCK_OPS_STATE_CB_FLAG) {
		arm_count.armed_before++;
		return 0;
	}
	flags |= BPF_SOCK_OPS_STATE_CB_FLAG;
	error = bpf_setsockopt(tp, SOL_TCP, WG_TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	if (error) {
		arm_count.failures++;
		arm_count.error = error;
	} else {
		arm_count.armed++;
	}
	return 0;
}
