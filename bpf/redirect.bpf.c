/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Hands every frame that comes in by an interface to the socket of the queue it came by, before the kernel looks at it. A queue
 * without a socket is left to the kernel. Attached by a link, so that it goes with the process that made it.
 *
 * Read first: the kernel's Documentation/networking/af_xdp.rst. */
#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64); /* QUEUES_MAX in crates/linux/src/interface/xdp.rs */
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int wg_redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
