/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* The network namespaces that a program acts in, of those that it sees: all below its cgroup. Filled by user space. */
#ifndef WEIRGATE_NAMESPACES_H
#define WEIRGATE_NAMESPACES_H

#include <stdbool.h>

#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 12);
	__type(key, __u32); /* inode number */
	__type(value, __u8);
} namespaces SEC(".maps");

static __always_inline bool is_in_namespaces(const struct sock_common *skc)
{
	__u32 inode = skc->skc_net.net->ns.inum;

	return bpf_map_lookup_elem(&namespaces, &inode);
}

#endif
