// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* The periodic look at every TCP socket of one network namespace: one struct wg_sample for each, written to the
 * iterator's file. User space reads it in crates/linux/src/bpf/poll.rs. Needs Linux 5.15 (iter/tcp that locks the socket).
 *
 * Request and TIME-WAIT sockets have no tcp_info: their records end after `cc`. */
#include "fill.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define PREFIXES_MAX 64
/* The clock is read once for so many sockets (about 0.7 us each): reading it costs as much as filling eight fields. */
#define CLOCK_EVERY 16

/* Whether to look up what other programs remember of each connection. The look-up misses three cache lines, which is as
 * much as all the rest of this program; so only where it is wanted. Set by the loader. */
const volatile _Bool conns_wanted = 0;

struct wg_network {
	__u64 address[2]; /* IPv4 mapped; in network order, under the mask */
	__u64 mask[2];
};

/* What is wanted; written by user space between polls, never during one. */
struct wg_filter {
	__u32 states; /* bit n: state n, after the renaming below */
	__u32 ports_used;
	__u32 wanted_used;
	__u32 unwanted_used;
	__u64 ports[65536 / 64];
	struct wg_network wanted[PREFIXES_MAX];
	struct wg_network unwanted[PREFIXES_MAX];
};

struct wg_filter filter SEC(".data.filter");

static __u64 now;

static __noinline int matches(const struct wg_network *networks, __u32 used, __u64 high, __u64 low)
{
	if (!networks)
		return 0;
	for (__u32 i = 0; i < PREFIXES_MAX && i < used; i++) {
		const struct wg_network *n = &networks[i];

		if ((high & n->mask[0]) == n->address[0] && (low & n->mask[1]) == n->address[1])
			return 1;
	}
	return 0;
}

SEC("iter/tcp")
int wg_poll(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct wg_sample s;
	struct tcp_sock *tp = 0;
	__u32 len = offsetof(struct wg_sample, bytes_sent);
	__u32 port;
	__u8 state;
	__u64 seq_num;

	if (!skc)
		return 0;
	state = skc->skc_state;
	if (!fields)
		fields = known_fields();
	__builtin_memset(&s, 0, sizeof(s));

	/* Renamed as inet_diag does. */
	if (state == WG_TCP_TIME_WAIT) {
		struct tcp_timewait_sock *tw = bpf_skc_to_tcp_timewait_sock(skc);

		if (!tw)
			return 0;
		state = tw->tw_sk.tw_substate;
		if (bpf_core_field_exists(tw->tw_sk.tw_mark)) {
			s.mark = tw->tw_sk.tw_mark;
			s.given |= BIT(WG_MARK);
		}
	} else if (state == WG_TCP_NEW_SYN_RECV) {
		struct tcp_request_sock *req = bpf_skc_to_tcp_request_sock(skc);

		if (!req)
			return 0;
		state = WG_TCP_SYN_RECV;
		s.mark = req->req.ir_mark;
		s.given |= BIT(WG_MARK);
	} else {
		tp = bpf_skc_to_tcp_sock(skc);
		if (!tp)
			return 0;
		s.given = fields;
		len = sizeof(s);
	}
	if (!(filter.states >> (state & 31) & 1))
		return 0;
	port = skc->skc_num;
	if (filter.ports_used && !(filter.ports[port / 64 % (65536 / 64)] >> port % 64 & 1))
		return 0;
	fill_ends(&s, skc);
	/* A listener has no remote end to judge by. */
	if ((filter.wanted_used || filter.unwanted_used) && state != WG_TCP_LISTEN) {
		__u64 high = ((__u64 *)s.remote)[0], low = ((__u64 *)s.remote)[1];

		if (filter.wanted_used && !matches(filter.wanted, filter.wanted_used, high, low))
			return 0;
		if (matches(filter.unwanted, filter.unwanted_used, high, low))
			return 0;
	}

	s.kind = WG_POLL;
	s.state = state;
	s.len = len;
	s.netns = skc->skc_net.net->ns.inum;
	s.cookie = skc->skc_cookie.counter;
	if (!s.cookie)
		s.cookie = bpf_get_socket_cookie(skc);
	s.given |= BIT(WG_NETNS);
	seq_num = ctx->meta->seq_num;
	if (seq_num % CLOCK_EVERY == 0 || !now)
		now = bpf_ktime_get_boot_ns();
	s.time_ns = now;
	if (tp) {
		fill_sock(&s, tp);
		if (state == WG_TCP_LISTEN) {
			s.unacked = tp->inet_conn.icsk_inet.sk.sk_ack_backlog;
		} else {
			struct wg_conn *conn = conns_wanted ? bpf_sk_storage_get(&conns, tp, 0, 0) : 0;

			fill_tcp(&s, tp);
			if (conn)
				fill_conn(&s, conn);
		}
		bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	} else {
		bpf_seq_write(ctx->meta->seq, &s, offsetof(struct wg_sample, bytes_sent));
	}
	return 0;
}
