/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* One observation of one TCP socket, as the kernel programs hand it to user space: by the iterator (a poll) or through
 * the ring buffer (a close). The twin is `Sample` in crates/sockets/src/sample.rs; a test there holds the offsets equal.
 * Byte order is the host's. Fields may be appended, never moved: `len` says how many bytes this writer filled. */
#ifndef WEIRGATE_SAMPLE_H
#define WEIRGATE_SAMPLE_H

enum wg_kind { WG_POLL = 0, WG_CLOSE = 1 };

enum wg_flag {
	WG_F_APP_LIMITED = 1 << 0, /* delivery_rate was taken while the application had nothing to send */
	WG_F_TIMESTAMPS = 1 << 1,  /* RFC 7323 timestamps were negotiated */
	WG_F_SACK = 1 << 2,        /* RFC 2018 */
	WG_F_ECN = 1 << 3,         /* RFC 3168, negotiated */
	WG_F_ECN_SEEN = 1 << 4,
	WG_F_ACCEPTED = 1 << 5,    /* this host accepted the connection (known, not guessed) */
	WG_F_CONNECTED = 1 << 6,   /* this host opened the connection (known, not guessed) */
	WG_F_SWITCHED = 1 << 7,    /* Weirgate changed its congestion control at least once */
};

/* Bits of `given`, for what not every kernel has; the twin is `Field`. */
enum wg_field {
	WG_BYTES_SENT,
	WG_BYTES_ACKED,
	WG_BYTES_RETRANS,
	WG_BYTES_RECEIVED,
	WG_DELIVERY_RATE,
	WG_PACING_RATE,
	WG_BUSY_US,
	WG_RWND_LIMITED_US,
	WG_SNDBUF_LIMITED_US,
	WG_BBR,
	WG_MIN_RTT_US,
	WG_SEGS_OUT,
	WG_SEGS_IN,
	WG_DATA_SEGS_OUT,
	WG_DATA_SEGS_IN,
	WG_REORD_SEEN,
	WG_DSACK_DUPS,
	WG_DELIVERED,
	WG_DELIVERED_CE,
	WG_NOTSENT_BYTES,
	WG_MEMORY,
	WG_MARK,
	WG_CGROUP_ID,
	WG_NETNS,
	WG_CC,
	WG_TCP_INFO, /* what every struct tcp_info had; absent in SYN-RECV and TIME-WAIT */
};

enum wg_arm { WG_ARM_NONE = 0, WG_ARM_TREATED = 1, WG_ARM_HOLDOUT = 2 };

struct wg_sample {
	__u16 len;
	__u8 kind;
	__u8 state; /* TCP_ESTABLISHED = 1 ..., include/net/tcp_states.h; of a close: the state it closed from. As inet_diag
	             * has it: a request is in SYN-RECV, a mini-socket that waits for a FIN is in FIN-WAIT-2 */
	__u8 ca_state;
	__u8 flags;
	__u8 arm;
	__u8 family; /* 4 or 6; IPv4-mapped addresses are 4 */
	__u16 local_port;
	__u16 remote_port;
	__u32 mark;
	__u8 local[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u8 remote[16];
	__u64 cookie;
	__u64 cgroup_id;
	__u64 time_ns; /* CLOCK_BOOTTIME */
	__u64 given;   /* bit n: field n of `Field` was given by this kernel */
	__u32 netns;   /* inode number of the network namespace */
	__u32 policy_version;
	char cc[16];
	__u64 bytes_sent;
	__u64 bytes_acked;
	__u64 bytes_retrans;
	__u64 bytes_received;
	__u64 delivery_rate; /* bytes/s */
	__u64 pacing_rate;   /* bytes/s, ~0 is no limit */
	__u64 busy_us;
	__u64 rwnd_limited_us;
	__u64 sndbuf_limited_us;
	__u64 bbr_bw; /* bytes/s */
	__u32 bbr_min_rtt_us; /* 0 where none was measured */
	__u16 bbr_pacing_gain; /* 256 is 1.0 */
	__u16 bbr_cwnd_gain;
	__u32 rtt_us;
	__u32 rttvar_us;
	__u32 min_rtt_us; /* 0 where none was measured */
	__u32 rto_us;
	__u32 snd_mss;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 segs_out;
	__u32 segs_in;
	__u32 data_segs_out;
	__u32 data_segs_in;
	__u32 total_retrans;
	__u32 lost;
	__u32 unacked; /* of a listener: connections that wait for accept() */
	__u32 retrans_out;
	__u32 reordering;
	__u32 reord_seen;
	__u32 dsack_dups;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 notsent_bytes;
	__u32 rmem_alloc;
	__u32 rcvbuf;
	__u32 wmem_queued;
	__u32 sndbuf;
	__u32 backlog_drops;
};

#endif
