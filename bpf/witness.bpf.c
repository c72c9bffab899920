/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* An independent witness for the experiments: which bytes of which stream left this host under which congestion control.
 * It looks at every packet of a control group as IP sends it, first transmissions and repeats alike, and shares nothing
 * with the program that switches. Never loaded by the daemon. (A tracing program on tcp_rate_skb_sent would do as well, on
 * kernels that have ftrace.) */
#include "kernel.h"

struct wg_segment {
	__u32 netns;
	__u16 local_port;
	__u16 remote_port;
	__u8 remote[16];
	__u64 start; /* offset in the stream of bytes this end sends */
	__u64 end;
	char cc[TCP_CA_NAME_MAX];
};

const volatile __u16 server_port = 80;
const volatile char default_cc[TCP_CA_NAME_MAX];

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} segments SEC(".maps");

#define PASS 1

__u64 seen;
__u64 lost;

SEC("cgroup_skb/egress")
int wg_witness(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	if (!sk)
		return PASS;
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || tp->inet_conn.icsk_inet.sk.__sk_common.skc_num != server_port)
		return PASS;
	/* The packet, from the IP header on; with segmentation offload, all of a train of segments. */
	__u8 first, words;
	__u32 tcp_at, seq;
	if (bpf_skb_load_bytes(skb, 0, &first, 1))
		return PASS;
	tcp_at = first >> 4 == 4 ? (first & 15) * 4 : 40; /* our own IPv6 packets carry no extension headers */
	if (bpf_skb_load_bytes(skb, tcp_at + 4, &seq, 4) || bpf_skb_load_bytes(skb, tcp_at + 12, &words, 1))
		return PASS;
	__u32 data_at = tcp_at + (words >> 4) * 4;
	if (skb->len <= data_at)
		return PASS;
	char cc[TCP_CA_NAME_MAX];
	bpf_probe_read_kernel_str(cc, sizeof(cc), tp->inet_conn.icsk_ca_ops->name);
	int same = 1;
	for (int i = 0; i < TCP_CA_NAME_MAX; i++) {
		if (cc[i] != default_cc[i])
			same = 0;
		if (!cc[i] || !same)
			break;
	}
	if (same)
		return PASS;
	__sync_fetch_and_add(&seen, 1);
	struct wg_segment *segment = bpf_ringbuf_reserve(&segments, sizeof(*segment), 0);
	if (!segment) {
		__sync_fetch_and_add(&lost, 1);
		return PASS;
	}
	struct sock_common *common = &tp->inet_conn.icsk_inet.sk.__sk_common;
	segment->netns = common->skc_net.net->ns.inum;
	segment->local_port = common->skc_num;
	segment->remote_port = bpf_ntohs(common->skc_dport);
	/* IPv4 as ::ffff:a.b.c.d, as everywhere. */
	__builtin_memset(segment->remote, 0, sizeof(segment->remote));
	if (common->skc_family == AF_INET) {
		segment->remote[10] = segment->remote[11] = 0xff;
		__builtin_memcpy(&segment->remote[12], &common->skc_daddr, 4);
	} else {
		bpf_probe_read_kernel(segment->remote, sizeof(segment->remote), &common->skc_v6_daddr);
	}
	/* bytes_acked is the offset of snd_una in the stream. */
	segment->start = tp->bytes_acked + (__s32)(bpf_ntohl(seq) - tp->snd_una);
	segment->end = segment->start + (skb->len - data_at);
	__builtin_memcpy(segment->cc, cc, sizeof(cc));
	bpf_ringbuf_submit(segment, 0);
	return PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
