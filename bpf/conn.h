/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What the programs remember of one connection, in the kernel's socket storage: it dies with the socket, nothing leaks.
 *
 * Ground rules: the sensing program (close.bpf.c) writes `direction` and reads the rest; the steering program
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
	__u8 steering;  /* the rest of this line and below belongs to steer.bpf.c */
	__u32 policy_version;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wg_conn);
} conns SEC(".maps");

#endif
