/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* From a kernel socket to a struct wg_sample, shared by the poll (poll.bpf.c) and the close record (close.bpf.c).
 *
 * The numbers are computed as tcp_get_info() in net/ipv4/tcp.c and bbr_get_info() in net/ipv4/tcp_bbr.c do, so that a poll
 * by netlink says the same. The caller holds the socket's lock. Everything is inlined and kept short: a host polls
 * hundreds of thousands of sockets, and each instruction counts as often. */
#ifndef WEIRGATE_FILL_H
#define WEIRGATE_FILL_H

#include "conn.h"
#include "sample.h"

#define BIT(n) (1ull << (n))
#define NSEC_PER_USEC 1000ull
#define USEC_PER_SEC 1000000ull
#define BBR_BW_SCALE 24 /* BW_SCALE in tcp_bbr.c: bandwidth is in packets per microsecond, times 2^24 */

/* Microseconds in one jiffy. Set by the loader from the resolution of CLOCK_MONOTONIC_COARSE, which is one tick. */
const volatile __u32 tick_us = 4000;

/* What this kernel's structures hold, as bits of `given`; worked out once, at the first socket. */
static __u64 fields;

static __always_inline __u64 known_fields(void)
{
	__u64 known = BIT(WG_NETNS) | BIT(WG_MARK) | BIT(WG_CC) | BIT(WG_MEMORY) | BIT(WG_PACING_RATE) |
		      BIT(WG_MIN_RTT_US) | BIT(WG_NOTSENT_BYTES) | BIT(WG_TCP_INFO);

#define KNOW(field, member)                                                                                            \
	if (bpf_core_field_exists(((struct tcp_sock *)0)->member))                                                      \
	known |= BIT(field)
	KNOW(WG_BYTES_SENT, bytes_sent);
	KNOW(WG_BYTES_ACKED, bytes_acked);
	KNOW(WG_BYTES_RETRANS, bytes_retrans);
	KNOW(WG_BYTES_RECEIVED, bytes_received);
	KNOW(WG_DELIVERY_RATE, rate_interval_us);
	KNOW(WG_SEGS_OUT, segs_out);
	KNOW(WG_SEGS_IN, segs_in);
	KNOW(WG_DATA_SEGS_OUT, data_segs_out);
	KNOW(WG_DATA_SEGS_IN, data_segs_in);
	KNOW(WG_REORD_SEEN, reord_seen);
	KNOW(WG_DSACK_DUPS, dsack_dups);
	KNOW(WG_DELIVERED, delivered);
	KNOW(WG_DELIVERED_CE, delivered_ce);
	KNOW(WG_CGROUP_ID, inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup);
#undef KNOW
	if (bpf_core_field_exists(((struct tcp_sock *)0)->chrono_stat))
		known |= BIT(WG_BUSY_US) | BIT(WG_RWND_LIMITED_US) | BIT(WG_SNDBUF_LIMITED_US);
	return known;
}

static __always_inline void copy16(void *to, const void *from)
{
	((__u64 *)to)[0] = ((const __u64 *)from)[0];
	((__u64 *)to)[1] = ((const __u64 *)from)[1];
}

static __always_inline void map_v4(void *to, __be32 address)
{
	((__u64 *)to)[0] = 0;
	((__u32 *)to)[2] = bpf_htonl(0xffff);
	((__u32 *)to)[3] = address;
}

/* Addresses and ports; all kinds of sockets have them. */
static __always_inline void fill_ends(struct wg_sample *s, const struct sock_common *skc)
{
	s->local_port = skc->skc_num;
	s->remote_port = bpf_ntohs(skc->skc_dport);
	if (skc->skc_family == AF_INET) {
		s->family = 4;
		map_v4(s->local, skc->skc_rcv_saddr);
		map_v4(s->remote, skc->skc_daddr);
	} else {
		copy16(s->local, &skc->skc_v6_rcv_saddr);
		copy16(s->remote, &skc->skc_v6_daddr);
		s->family = ((__u64 *)s->remote)[0] == 0 && ((__u32 *)s->remote)[2] == bpf_htonl(0xffff) ? 4 : 6;
	}
}

static __always_inline void fill_bbr(struct wg_sample *s, const struct tcp_sock *tp)
{
	const struct bbr *bbr = (const void *)tp->inet_conn.icsk_ca_priv;

	if (!bpf_core_field_exists(bbr->bw) || !bpf_core_field_exists(bbr->cwnd_gain))
		return;
	/* The bit-field reader makes plain loads of constant offset, which is what may be read from icsk_ca_priv. */
	__u64 bw = BPF_CORE_READ_BITFIELD(bbr, bw.s[0].v);
	__u32 min_rtt = BPF_CORE_READ_BITFIELD(bbr, min_rtt_us);

	if (bpf_core_field_exists(bbr->lt_use_bw) && BPF_CORE_READ_BITFIELD(bbr, lt_use_bw))
		bw = BPF_CORE_READ_BITFIELD(bbr, lt_bw);
	s->bbr_bw = bw * s->snd_mss * USEC_PER_SEC >> BBR_BW_SCALE;
	s->bbr_min_rtt_us = min_rtt == ~0u ? 0 : min_rtt;
	s->bbr_pacing_gain = BPF_CORE_READ_BITFIELD(bbr, pacing_gain);
	s->bbr_cwnd_gain = BPF_CORE_READ_BITFIELD(bbr, cwnd_gain);
	s->given |= BIT(WG_BBR);
}

static __always_inline void fill_chrono(struct wg_sample *s, const struct tcp_sock *tp)
{
	if (!bpf_core_field_exists(tp->chrono_stat))
		return;
	/* enum tcp_chrono: 1 busy, 2 limited by the receiver's window, 3 by the send buffer; 0 idle. Ticks. */
	__u32 busy = tp->chrono_stat[0], rwnd = tp->chrono_stat[1], sndbuf = tp->chrono_stat[2];
	__u32 running = BPF_CORE_READ_BITFIELD(tp, chrono_type);

	if (running) {
		__u32 since = (__u32)bpf_jiffies64() - tp->chrono_start;

		if (running == 1)
			busy += since;
		else if (running == 2)
			rwnd += since;
		else
			sndbuf += since;
	}
	s->busy_us = ((__u64)busy + rwnd + sndbuf) * tick_us;
	s->rwnd_limited_us = (__u64)rwnd * tick_us;
	s->sndbuf_limited_us = (__u64)sndbuf * tick_us;
}

/* What every full socket has, listeners too. */
static __always_inline void fill_sock(struct wg_sample *s, const struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	__u64 pacing;

	s->mark = sk->sk_mark;
	if (bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		s->cgroup_id = sk->sk_cgrp_data.cgroup->kn->id;
	copy16(s->cc, tp->inet_conn.icsk_ca_ops->name);
	/* An unsigned int until 4.20: its all ones mean no limit, too. */
	pacing = sk->sk_pacing_rate;
	s->pacing_rate = pacing == ~0u && bpf_core_field_size(sk->sk_pacing_rate) == 4 ? ~0ull : pacing;
	s->rmem_alloc = sk->sk_backlog.rmem_alloc.counter;
	s->rcvbuf = sk->sk_rcvbuf;
	s->wmem_queued = sk->sk_wmem_queued;
	s->sndbuf = sk->sk_sndbuf;
	s->backlog_drops = sk->sk_drops.counter;
}

/* What connections have. Needs fill_sock() done, and `given` to hold the fields of the kernel. */
static __always_inline void fill_tcp(struct wg_sample *s, const struct tcp_sock *tp)
{
	__u32 rate, interval, min_rtt;
	__u8 flags = 0, ecn;

	s->ca_state = BPF_CORE_READ_BITFIELD(tp, inet_conn.icsk_ca_state);
	if (BPF_CORE_READ_BITFIELD(tp, rx_opt.tstamp_ok))
		flags |= WG_F_TIMESTAMPS;
	if (BPF_CORE_READ_BITFIELD(tp, rx_opt.sack_ok))
		flags |= WG_F_SACK;
	/* TCP_ECN_OK, later TCP_ECN_MODE_RFC3168, is bit 0; TCP_ECN_MODE_ACCECN is bit 4; TCP_ECN_SEEN is bit 3. */
	ecn = tp->ecn_flags;
	if (ecn & 0x11)
		flags |= WG_F_ECN;
	if (ecn & 0x08)
		flags |= WG_F_ECN_SEEN;
	if (BPF_CORE_READ_BITFIELD(tp, rate_app_limited))
		flags |= WG_F_APP_LIMITED;
	s->flags |= flags;

	s->snd_mss = tp->mss_cache;
	s->bytes_acked = tp->bytes_acked;
	s->bytes_received = tp->bytes_received;
	if (bpf_core_field_exists(tp->bytes_sent))
		s->bytes_sent = tp->bytes_sent;
	if (bpf_core_field_exists(tp->bytes_retrans))
		s->bytes_retrans = tp->bytes_retrans;
	rate = tp->rate_delivered;
	interval = tp->rate_interval_us;
	if (rate && interval)
		s->delivery_rate = (__u64)rate * s->snd_mss * USEC_PER_SEC / interval;
	fill_chrono(s, tp);

	s->rtt_us = tp->srtt_us >> 3;
	s->rttvar_us = tp->mdev_us >> 2;
	min_rtt = tp->rtt_min.s[0].v;
	s->min_rtt_us = min_rtt == ~0u ? 0 : min_rtt;
	s->rto_us = tp->inet_conn.icsk_rto * tick_us;
	s->snd_cwnd = tp->snd_cwnd;
	s->snd_ssthresh = tp->snd_ssthresh;
	s->segs_out = tp->segs_out;
	s->segs_in = tp->segs_in;
	s->data_segs_out = tp->data_segs_out;
	s->data_segs_in = tp->data_segs_in;
	s->total_retrans = tp->total_retrans;
	s->lost = tp->lost_out;
	s->unacked = tp->packets_out;
	s->retrans_out = tp->retrans_out;
	s->reordering = tp->reordering;
	if (bpf_core_field_exists(tp->reord_seen))
		s->reord_seen = tp->reord_seen;
	if (bpf_core_field_exists(tp->dsack_dups))
		s->dsack_dups = tp->dsack_dups;
	s->delivered = tp->delivered;
	if (bpf_core_field_exists(tp->delivered_ce))
		s->delivered_ce = tp->delivered_ce;
	__s32 notsent = tp->write_seq - tp->snd_nxt;
	s->notsent_bytes = notsent > 0 ? notsent : 0;

	if (s->cc[0] == 'b' && s->cc[1] == 'b' && s->cc[2] == 'r' && !s->cc[3] && bpf_core_type_exists(struct bbr))
		fill_bbr(s, tp);
}

/* What our programs remember of the connection. */
static __always_inline void fill_conn(struct wg_sample *s, const struct wg_conn *conn)
{
	s->arm = conn->arm;
	s->policy_version = conn->policy_version;
	if (conn->direction == WG_ACCEPTED)
		s->flags |= WG_F_ACCEPTED;
	else if (conn->direction == WG_CONNECTED)
		s->flags |= WG_F_CONNECTED;
	if (conn->switched)
		s->flags |= WG_F_SWITCHED;
}

#endif
