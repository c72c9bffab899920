/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Which clients of a selected network stay on the default, for comparison. The twin of crates/tune/src/holdout.rs: the
 * same draw from the same seed. The test `the_holdout_is_the_one_that_the_controller_computes` compares the two on real
 * connections of both families (crates/linux/tests/steer/policies.rs). */
#ifndef WEIRGATE_HOLDOUT_H
#define WEIRGATE_HOLDOUT_H

#include <stdbool.h>

#include "kernel.h"

/* The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). */
static __always_inline __u64 wg_mix(__u64 z)
{
	z += 0x9e3779b97f4a7c15ULL;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* `client` is in network order, IPv4 as ::ffff:a.b.c.d; `share_ppm` is the share held out, in parts per million. */
static __always_inline bool wg_holds(__u64 seed, __u32 epoch, __u32 share_ppm, const __be32 client[4])
{
	__u64 hash = wg_mix(seed ^ epoch);

	hash = wg_mix(hash ^ ((__u64)bpf_ntohl(client[0]) << 32 | bpf_ntohl(client[1])));
	hash = wg_mix(hash ^ ((__u64)bpf_ntohl(client[2]) << 32 | bpf_ntohl(client[3])));
	/* The upper 32 bits, scaled to 0..1,000,000 without division. */
	return ((hash >> 32) * 1000000) >> 32 < share_ppm;
}

#endif
