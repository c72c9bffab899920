/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Which sockets are wanted: what is not costs no copy. Twin: crates/linux/src/bpf/filter.rs. */
#ifndef WEIRGATE_FILTER_H
#define WEIRGATE_FILTER_H

#include "kernel.h"
#include "sample.h"

#define PREFIXES_MAX 64
#define PORTS 65536

struct wg_network {
	__u64 address[2]; /* IPv4 mapped; in network order, under the mask */
	__u64 mask[2];
};

struct wg_filter {
	__u32 states; /* bit n: state n as struct wg_sample has it; of polls only */
	__u32 ports_used;
	__u32 wanted_used;
	__u32 unwanted_used;
	__u64 ports[PORTS / 64];
	struct wg_network wanted[PREFIXES_MAX];
	struct wg_network unwanted[PREFIXES_MAX];
};

static __always_inline int filter_wants_state(const struct wg_filter *filter, __u8 state)
{
	return filter->states >> (state & 31) & 1;
}

static __always_inline int filter_wants_port(const struct wg_filter *filter, __u16 port)
{
	return !filter->ports_used || filter->ports[port / 64] >> port % 64 & 1;
}

static __noinline int networks_hold(const struct wg_network *networks, __u32 used, __u64 high, __u64 low)
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

/* Looks at the address that fill_ends() has filled. */
static __always_inline int filter_wants_remote(const struct wg_filter *filter, const struct wg_sample *s)
{
	__u64 high = ((const __u64 *)s->remote)[0], low = ((const __u64 *)s->remote)[1];

	if (filter->wanted_used && !networks_hold(filter->wanted, filter->wanted_used, high, low))
		return 0;
	return !filter->unwanted_used || !networks_hold(filter->unwanted, filter->unwanted_used, high, low);
}

#endif
