// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* The periodic look at every TCP socket of one network namespace: one struct wg_sample for each, written to the
 * iterator's file. User space reads it in crates/linux/src/bpf/poll.rs. Needs Linux 5.15 (iter/tcp that locks the socket).
 *
 * Request and TIME-WAIT sockets have no tcp_info: their records end after `cc`. */
#include "fill.h"
#include "filter.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* The clock is read once for so many sockets (about 0.7 us each): reading it costs as much as filling eight fields. */
#define CLOCK_EVERY 16

/* Whether to look up what other programs remember of each connection. The look-up misses three cache lines, which is as
 * much as all the rest of this program; so only where it is wanted. Set by the loader. */
const volatile _Bool conns_wanted = 0;

/* Written by user space between polls, never during one. */
struct wg_filter filter SEC(".data.filter");

static __u64 now;

SEC("iter/tcp")
int wg_poll(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct wg_sample s;
	struct tcp_sock *tp = 0;
	__u32 len = offsetof(struct wg_sample, bytes_sent);
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
	if (!filter_wants_state(&filter, state) || !filter_wants_port(&filter, skc->skc_num))
		return 0;
	fill_ends(&s, skc);
	/* A listener has no remote end to judge by. */
	if (state != WG_TCP_LISTEN && !filter_wants_remote(&filter, &s))
		return 0;

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
