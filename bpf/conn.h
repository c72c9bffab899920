/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What the programs remember of one connection, in the kernel's socket storage: it dies with the socket, nothing leaks.
 *
 * Ground rules: the sensing program (close.bpf.c) writes `direction` and `rate_*` and reads the rest; the steering program
 * (steer.bpf.c) writes the rest and may write `direction`, with the same meaning. Both are called under the socket's
 * lock, so plain loads and stores do. Where both are loaded they share one map: the sense is loaded with the map that
 * steering pinned. Only full sockets have storage: bpf_sk_storage_get() answers NULL for request and TIME-WAIT sockets.
 *
 * A pinned map outlives the program that made it: where the layout changes, the pin's name changes with it. */
#ifndef WEIRGATE_CONN_H
#define WEIRGATE_CONN_H

#include "kernel.h"

enum wg_direction {
	WG_DIRECTION_UNKNOWN = 0, /* open before any of our programs was attached */
	WG_ACCEPTED = 1,          /* the remote end opened it */
	WG_CONNECTED = 2,         /* this host opened it */
};

struct wg_conn {
	__u8 direction; /* enum wg_direction */
	__u8 arm;       /* enum wg_arm of sample.h */
	__u8 switched;  /* not 0: we changed its congestion control at least once */
	__u8 steering;  /* from here on steer.bpf.c's own: what it knows, in bits */
	__u32 policy_version;
	__u32 generation;    /* of the settings that it was assigned by; 0: not taken up */
	__u32 current_key;   /* of the algorithm that we set last; any other was set by the application */
	__u64 base;          /* bytes_acked at the response's beginning */
	__u64 received;      /* bytes_received when the send queue was last seen with data, or at the last boundary */
	char own[TCP_CA_NAME_MAX];     /* what it ran on before our first change */
	char current[TCP_CA_NAME_MAX]; /* what we set last */
	char chosen[TCP_CA_NAME_MAX];  /* what the policy wants for responses over the threshold */
	__u8 callbacks;      /* the callback flags that we added to those of other programs */
	__u8 rate_kept;      /* not 0: the following three are the sense's note of the last delivery-rate sample of data */
	__u8 rate_app_limited;
	__u8 paced;          /* not 0: the kernel paced it before our first change */
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 rate_data_segs_out; /* when it was noted: more data has been sent since where this differs */
	/* Of the switched response, by the steering program: */
	__u32 cap;           /* bytes/s that it is held to while it starts; 0 is not at all */
	__u32 cap_before;    /* the application's own limit; ~0 is none */
	__u64 grown_rate;    /* the delivery rate when it last grew by a quarter, bytes/s */
	__u64 grown_ns;      /* when that was, CLOCK_BOOTTIME */
	__u64 grown_acked;   /* and bytes_acked then */
	__u8 settled;        /* round trips since then */
	__u8 reserved_end[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wg_conn);
} conns SEC(".maps");

#endif
