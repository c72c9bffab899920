/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What the steering program and its loader exchange. The twin is crates/linux/src/bpf/steer/layout.rs; a test there
 * holds the sizes and offsets equal. Everything here is pinned and may outlive the process that made it. */
#ifndef WEIRGATE_STEER_H
#define WEIRGATE_STEER_H

#include "kernel.h"

/* Key of `networks`: BPF_MAP_TYPE_LPM_TRIE wants the length first. IPv4 is ::ffff:a.b.c.d/(96 + length). */
struct wg_network_key {
	__u32 prefix_len;
	__be32 address[4];
};

struct wg_network {
	char cc[TCP_CA_NAME_MAX];
	__u32 family; /* 4 or 6: ::/0 lies around the mapped addresses but selects no IPv4 client */
	__u32 reserved;
	/* The program's own, 0 when written by user space: the highest rates, bytes/s, at which switched responses were delivered
	 * once they had settled, in this half of the memory and the one before, and when this half began. */
	__u64 carried[2];
	__u64 carried_since_ns;
};

struct wg_settings {
	__u32 policy_version;
	__u32 epoch;     /* of the holdout, as the next two */
	__u64 seed;
	__u32 share_ppm;
	__u16 stay;      /* not 0: keep the chosen algorithm for the connection's life */
	__u16 cap_start; /* not 0: a switched response does not start faster than what its network is known to carry */
	__u64 switch_after; /* bytes of one response, acknowledged, that must have passed before a switch */
	char default_cc[TCP_CA_NAME_MAX]; /* empty: what the system gave the socket */
};

/* The settings of generation g are in slot g & 1: the loader fills the other slot, then publishes by one store. */
struct wg_control {
	__u64 expiry_ns; /* CLOCK_BOOTTIME; past it every callback undoes what it finds. The loader renews it */
	__u32 generation; /* 0: no policy yet */
	__u32 reserved;
	struct wg_settings settings[2];
	__u64 cgroup_id; /* what the program is attached to, for the iterator; 0 is the root: every socket */
};

/* One per CPU; their sums are what is reported. Appended to, never re-ordered. */
struct wg_steer_counters {
	__u64 matched;        /* accepted connections whose client lies in a selected network */
	__u64 treated;        /* of these, to be switched */
	__u64 held_out;       /* of these, kept on the default for comparison */
	__u64 exempt;         /* left alone: the application chose its own congestion control */
	__u64 switched;       /* responses that passed the threshold */
	__u64 returned;       /* responses at whose end the connection went back */
	__u64 expired;        /* connections found past the expiry and undone */
	__u64 failed;         /* setsockopt refused */
	__u64 boundaries;     /* responses told apart */
	__u64 violations;     /* responses that ended below the threshold while switched: stays 0 */
	__u64 open_set;       /* open connections that a policy took up, or put on another default */
	__u64 open_reset;     /* open connections that a policy, or the sweep, put back */
	__u64 open_unreached; /* open connections that this kernel cannot take up (before 6.12) */
	__u64 capped;         /* switched responses whose start was capped */
	__u64 unpaced;        /* connections whose pacing, an algorithm's leftover, ended with it */
};

#endif
