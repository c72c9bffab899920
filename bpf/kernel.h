/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* The kernel's types as far as our programs read them. Only the members named here are relied upon: the loader finds each
 * by name in the running kernel's BTF (CO-RE, "compile once, run everywhere"), so order, size and neighbours are free to
 * differ. Members of some kernels only are asked for with bpf_core_field_exists() first.
 *
 * Read first: include/net/sock.h, include/net/inet_connection_sock.h, include/linux/tcp.h, Documentation/bpf/libbpf. */
#ifndef WEIRGATE_KERNEL_H
#define WEIRGATE_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Numbers of the kernel's interface that older headers lack. */
#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define TCP_CA_NAME_MAX 16
#define WG_SK_PACING_NONE 0 /* enum sk_pacing, include/net/sock.h */
#define WG_SK_PACING_NEEDED 1
#define WG_SOCK_BINDPORT_LOCK 8 /* SOCK_BINDPORT_LOCK, include/net/sock.h */
#define WG_TCP_BPF_SOCK_OPS_CB_FLAGS 1008 /* TCP_BPF_SOCK_OPS_CB_FLAGS, Linux 6.12 */

/* include/net/tcp_states.h; the first twelve are also in linux/bpf.h as BPF_TCP_*. */
enum {
	WG_TCP_ESTABLISHED = 1,
	WG_TCP_SYN_SENT = 2,
	WG_TCP_SYN_RECV = 3,
	WG_TCP_TIME_WAIT = 6,
	WG_TCP_CLOSE = 7,
	WG_TCP_LISTEN = 10,
	WG_TCP_NEW_SYN_RECV = 12,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	long long counter;
} atomic64_t;

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	short unsigned int skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	atomic_t sk_drops;
	int sk_rcvbuf;
	int sk_sndbuf;
	int sk_wmem_queued;
	__u32 sk_ack_backlog;
	long unsigned int sk_pacing_rate;
	long unsigned int sk_max_pacing_rate;
	__u32 sk_pacing_status;
	__u32 sk_mark;
	__u8 sk_userlocks : 4;
	__u16 sk_protocol;
	struct sock_cgroup_data sk_cgrp_data;
};

struct inet_sock {
	struct sock sk;
};

struct tcp_congestion_ops {
	char name[TCP_CA_NAME_MAX];
	__u32 key; /* a hash of the name, unique among the registered ones */
	void (*init)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	__u32 (*undo_cwnd)(struct sock *sk);
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u32 icsk_rto;
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u8 icsk_ca_state : 5;
	__u8 icsk_ca_setsockopt : 1;
	struct {
		__u32 lrcvtime; /* jiffies when data was last received */
	} icsk_ack;
	__u64 icsk_ca_priv[1];
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_options_received {
	__u16 tstamp_ok : 1;
	__u16 sack_ok : 3;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_options_received rx_opt;
	struct minmax rtt_min;
	__u64 bytes_received;
	__u64 bytes_acked;
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u32 segs_in;
	__u32 data_segs_in;
	__u32 segs_out;
	__u32 data_segs_out;
	__u64 delivered_mstamp; /* microseconds: when an acknowledgement last covered something new */
	__u32 rcv_nxt;
	__u32 snd_wl1; /* sequence number of the last segment that acknowledged, or carried, something new */
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u32 mss_cache;
	__u32 srtt_us;
	__u32 mdev_us;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 lost_out;
	__u32 total_retrans;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 reordering;
	__u32 reord_seen;
	__u32 dsack_dups;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u8 rate_app_limited : 1;
	__u8 ecn_flags;
	__u8 chrono_type; /* a bit field of two bits until 6.x; read by BPF_CORE_READ_BITFIELD */
	__u32 chrono_start;
	__u32 chrono_stat[3];
	__u8 bpf_sock_ops_cb_flags;
};

struct inet_timewait_sock {
	struct sock_common __tw_common;
	volatile unsigned char tw_substate;
	__u32 tw_mark;
};

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
};

struct request_sock {
	struct sock_common __req_common;
};

struct inet_request_sock {
	struct request_sock req;
	__u32 ir_mark;
};

struct tcp_request_sock {
	struct inet_request_sock req;
};

/* net/ipv4/tcp_bbr.c; what lives in icsk_ca_priv of a socket whose congestion control is called "bbr". */
struct bbr {
	__u32 min_rtt_us;
	struct minmax bw;
	__u32 lt_use_bw : 1;
	__u32 lt_bw;
	__u32 pacing_gain : 10;
	__u32 cwnd_gain : 10;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

#endif
