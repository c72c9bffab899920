/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Takes a socket's pacing away, by being its congestion control for an instant.
 *
 * An algorithm that paces (bbr) sets sk_pacing_status, and nothing in the kernel ever takes it back: a connection that was
 * on BBR for one response is paced under CUBIC for the rest of its life, which costs a 20 KB response a fifth of a round
 * trip. Only an algorithm may write that member, so there is one that does nothing else. The steering program sets it and, in the
 * same breath, the algorithm that the connection goes back to. Should that be refused, the connection is on Reno.
 *
 * Read first: net/ipv4/bpf_tcp_ca.c (what an algorithm may write), tcp_needs_internal_pacing() in include/net/tcp.h. */
#include "kernel.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

/* Where fq paces it (SK_PACING_FQ), that is not ours to end. */
SEC("struct_ops")
void BPF_PROG(unpace_init, struct sock *sk)
{
	if (sk->sk_pacing_status == WG_SK_PACING_NEEDED)
		sk->sk_pacing_status = WG_SK_PACING_NONE;
}

SEC("struct_ops")
__u32 BPF_PROG(unpace_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SEC("struct_ops")
void BPF_PROG(unpace_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(unpace_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

/* The loader gives it a name that no other instance has. */
SEC(".struct_ops.link")
struct tcp_congestion_ops unpace = {
	.init = (void *)unpace_init,
	.ssthresh = (void *)unpace_ssthresh,
	.cong_avoid = (void *)unpace_cong_avoid,
	.undo_cwnd = (void *)unpace_undo_cwnd,
	.name = "wg_unpace",
};
