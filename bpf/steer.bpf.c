/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Steering: which congestion control sends a response.
 *
 * It obeys a policy (networks, threshold, holdout) and decides nothing. Accepted connections on the configured ports
 * whose client lies in a selected network, and is not held out, are switched once a response has passed the threshold, and
 * are back on their own algorithm before the first byte of the next is queued. Read first: net/ipv4/tcp_input.c
 * (tcp_rtt_estimator(), tcp_rcv_established()), net/ipv4/tcp_output.c (tcp_current_mss(), tcp_established_options()),
 * include/uapi/linux/bpf.h (BPF_SOCK_OPS_*).
 *
 * A response's boundary: bytes were received while the send queue was empty, and at least one byte was sent since the
 * last boundary. Bytes received during an unfinished response are none. Two callbacks, both under the socket's lock:
 *  - HDR_OPT_LEN_CB: tcp_sendmsg() calls it through tcp_current_mss() before it queues a byte, and every packet sent,
 *    pure acknowledgements too, calls it for its options (we reserve no room). An empty queue there means that all
 *    before is delivered: the connection goes back, and what was received since the queue was last seen with data is the next
 *    request. This is what makes sure that no segment of a small response leaves under another algorithm.
 *  - RTT_CB: once per round trip, when an acknowledgement passes what had been sent at the last one. Here it is
 *    switched.
 * RTT_CB alone would not do: it stays out on the acknowledgement that empties the queue whenever another one of the
 * same round trip came before. No callback is made for each acknowledgement, so a connection on which nothing follows
 * keeps the chosen algorithm while it is idle; steer_open, run from time to time, puts such back.
 *
 * Where bytes came between the last packet of a response and its last acknowledgement, and no more than two or three ticks
 * (8 to 12 ms at 250 Hz) before that, they are taken for a request where no callback told them apart; a boundary too many
 * delays a switch and does no other harm. A request that came during an unfinished response (a pipelined one) is none, as
 * defined above, also where its answer begins after a pause. HDR_OPT_LEN_CB is not made where options leave no room (three
 * SACK blocks beside a timestamp: the client's upload has holes); the next packet's is.
 *
 * BBR starts by sending 2.9 times what is delivered until that grows no more, and each switch begins with such a start:
 * where the bottleneck's queue holds one bandwidth-delay product, a tenth of a 5 MB response is dropped, and the packets of
 * its neighbours with it. So the rate that responses settled at is remembered for each network, and the next one's pacing is
 * capped at it (SO_MAX_PACING_RATE) until its own rate has settled. A limit that the application set is never raised.
 *
 * Every callback compares the clock with an expiry that user space renews: past it, it undoes what it finds.
 * Ground rules: callback flags are added to those of other programs, and only our own are taken away again. */
#include <stdbool.h>

#include "conn.h"
#include "holdout.h"
#include "kernel.h"
#include "namespaces.h"
#include "sample.h"
#include "steer.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Round trips in which the delivery rate has not grown by a quarter before it has settled. BBR's start ends after 3; two more
 * make sure that it has, since its rounds are not ours. */
#define SETTLED_ROUNDS 5
/* Half of the memory of what a network carries: long enough to meet the next large response, short enough to find within
 * minutes that a path has become faster. */
#define CARRIED_HALF_NS (300 * 1000000000ull)

/* Bits of wg_conn.steering. */
enum {
	OWN_KNOWN = 1 << 0, /* we changed it at least once: `own` and `last_key` hold */
	SWITCHED = 1 << 1,  /* it is on the chosen algorithm now */
	EXEMPT = 1 << 2,    /* left alone for ever: its application chose, or the kernel refused us */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 100000);
	__type(key, struct wg_network_key);
	__type(value, struct wg_network);
} networks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u16);
	__type(value, __u8);
} server_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wg_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wg_steer_counters);
} counters SEC(".maps");

/* Where somebody listens: what the walk that saw it last was called. Least recently seen ones make room. */
struct wg_listener {
	__u32 netns; /* inode number */
	__u16 family;
	__u16 port;
	__be32 address[4]; /* all 0: every address of the family */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct wg_listener);
	__type(value, __u64);
} listeners SEC(".maps");

/* Atomic: a callback in process context can be interrupted by one in a softirq. */
#define COUNT(name)                                                                   \
	do {                                                                              \
		__u32 zero_ = 0;                                                              \
		struct wg_steer_counters *counters_ = bpf_map_lookup_elem(&counters, &zero_); \
		if (counters_)                                                                \
			__sync_fetch_and_add(&counters_->name, 1);                                \
	} while (0)

static __always_inline struct wg_control *control_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline struct wg_settings *settings_of(struct wg_control *c, __u32 generation)
{
	return generation & 1 ? &c->settings[1] : &c->settings[0];
}

static __always_inline bool is_expired(struct wg_control *c)
{
	return bpf_ktime_get_boot_ns() >= *(volatile __u64 *)&c->expiry_ns;
}

static __always_inline bool same_cc(const char *a, const char *b)
{
	return *(const __u64 *)a == *(const __u64 *)b && *(const __u64 *)(a + 8) == *(const __u64 *)(b + 8);
}

static __always_inline void copy_cc(char *to, const char *from)
{
	*(__u64 *)to = *(const __u64 *)from;
	*(__u64 *)(to + 8) = *(const __u64 *)(from + 8);
}

static __always_inline bool queue_is_empty(struct tcp_sock *tp)
{
	return tp->snd_una == tp->write_seq;
}

/* ---- the congestion control of one socket ---- */

static __always_inline bool set_pacing_max(void *who, __u32 rate)
{
	return !bpf_setsockopt(who, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}

static __always_inline void lift_cap(void *who, struct tcp_sock *tp, struct wg_conn *conn)
{
	if (!conn->cap)
		return;
	/* Another value now is the application's. */
	if (tp->inet_conn.icsk_inet.sk.sk_max_pacing_rate == conn->cap)
		set_pacing_max(who, conn->cap_before);
	conn->cap = 0;
}

/* Leaves it alone for ever. */
static __always_inline void exempt(void *who, struct tcp_sock *tp, struct wg_conn *conn)
{
	lift_cap(who, tp, conn);
	conn->steering = (conn->steering & ~SWITCHED) | EXEMPT;
	conn->arm = WG_ARM_NONE;
}

/* False, for ever, where the socket's algorithm is not ours to change. */
static __always_inline bool is_ours(void *who, struct tcp_sock *tp, struct wg_conn *conn)
{
	bool chosen;

	if (conn->steering & EXEMPT)
		return false;
	if (conn->steering & OWN_KNOWN)
		/* The key is a hash of the name that the kernel keeps unique among the registered algorithms. */
		chosen = tp->inet_conn.icsk_ca_ops->key != conn->current_key;
	else
		/* Also set where the application chose for the listener: inherited. Our own change leaves the same trace. */
		chosen = BPF_CORE_READ_BITFIELD(tp, inet_conn.icsk_ca_setsockopt);
	if (chosen) {
		COUNT(exempt);
		exempt(who, tp, conn);
	}
	return !chosen;
}

/* Whether it runs on anything but what it had before us. */
static __always_inline bool is_changed(struct wg_conn *conn)
{
	return conn->steering & OWN_KNOWN && !same_cc(conn->current, conn->own);
}

/* The congestion control that ends a socket's pacing (unpace.bpf.c), set by the loader; empty where this kernel has none. */
const volatile char unpacer[TCP_CA_NAME_MAX];

/* Before it leaves an algorithm. Pacing that the application asked for, before or by a limit, stays. */
static __always_inline void unpace(void *who, struct tcp_sock *tp, struct wg_conn *conn)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	if (!unpacer[0] || conn->paced || sk->sk_pacing_status != WG_SK_PACING_NEEDED ||
	    sk->sk_max_pacing_rate != ~0ul)
		return;
	if (!bpf_setsockopt(who, SOL_TCP, TCP_CONGESTION, (void *)unpacer, TCP_CA_NAME_MAX) &&
	    sk->sk_pacing_status == WG_SK_PACING_NONE)
		COUNT(unpaced);
}

/* Sets `name`, a map's value. `who` is what this program type's setsockopt takes. False: not ours, or refused. */
static __always_inline bool set_cc(void *who, struct tcp_sock *tp, struct wg_conn *conn, char *name)
{
	if (!is_ours(who, tp, conn))
		return false;
	if (!(conn->steering & OWN_KNOWN)) {
		bpf_probe_read_kernel(conn->own, sizeof(conn->own), tp->inet_conn.icsk_ca_ops->name);
		copy_cc(conn->current, conn->own);
		conn->paced = tp->inet_conn.icsk_inet.sk.sk_pacing_status != WG_SK_PACING_NONE;
	}
	if (same_cc(conn->current, name))
		return true;
	unpace(who, tp, conn);
	if (bpf_setsockopt(who, SOL_TCP, TCP_CONGESTION, name, TCP_CA_NAME_MAX)) {
		COUNT(failed);
		exempt(who, tp, conn);
		return false;
	}
	conn->current_key = tp->inet_conn.icsk_ca_ops->key;
	copy_cc(conn->current, name);
	conn->steering |= OWN_KNOWN;
	conn->switched = 1;
	return true;
}

/* ---- where its client is ---- */

/* The network that the policy selected and that holds the client; fills the key with its address. */
static __always_inline struct wg_network *network_of(struct tcp_sock *tp, struct wg_network_key *key)
{
	struct sock_common *skc = &tp->inet_conn.icsk_inet.sk.__sk_common;
	struct wg_network *network;
	__u32 family;

	key->prefix_len = 128;
	if (skc->skc_family == AF_INET6) {
		/* A dual-stack listener's IPv4 clients are mapped here already. */
		key->address[0] = skc->skc_v6_daddr.in6_u.u6_addr32[0];
		key->address[1] = skc->skc_v6_daddr.in6_u.u6_addr32[1];
		key->address[2] = skc->skc_v6_daddr.in6_u.u6_addr32[2];
		key->address[3] = skc->skc_v6_daddr.in6_u.u6_addr32[3];
	} else {
		key->address[0] = 0;
		key->address[1] = 0;
		key->address[2] = bpf_htonl(0xffff);
		key->address[3] = skc->skc_daddr;
	}
	family = !key->address[0] && !key->address[1] && key->address[2] == bpf_htonl(0xffff) ? 4 : 6;
	network = bpf_map_lookup_elem(&networks, key);
	return network && network->family == family ? network : NULL;
}

/* ---- the start of a switched response ---- */

/* The highest rate that the network is known to carry, bytes/s; 0 is unknown. */
static __always_inline __u64 carried_by(struct wg_network *network)
{
	__u64 age = bpf_ktime_get_boot_ns() - network->carried_since_ns;

	if (age >= 2 * CARRIED_HALF_NS)
		return 0;
	if (age >= CARRIED_HALF_NS)
		return network->carried[0];
	return network->carried[0] > network->carried[1] ? network->carried[0] : network->carried[1];
}

/* Responses of one network race here: what one of them loses, the next one brings. */
static __always_inline void remember_carried(struct wg_network *network, __u64 rate)
{
	__u64 now = bpf_ktime_get_boot_ns();
	__u64 age = now - network->carried_since_ns;

	if (age >= CARRIED_HALF_NS) {
		network->carried[1] = age < 2 * CARRIED_HALF_NS ? network->carried[0] : 0;
		network->carried[0] = 0;
		network->carried_since_ns = now;
	}
	if (network->carried[0] < rate)
		network->carried[0] = rate;
}

static __always_inline void cap_start(void *who, struct tcp_sock *tp, struct wg_conn *conn, struct wg_network *network)
{
	unsigned long own = tp->inet_conn.icsk_inet.sk.sk_max_pacing_rate;
	__u64 rate = carried_by(network);

	conn->grown_rate = 0;
	conn->settled = 0;
	/* The option has 32 bits; all ones are no limit. */
	if (!rate || rate >= ~0u || own <= rate || (own >= ~0u && own != ~0ul) || !set_pacing_max(who, rate))
		return;
	conn->cap = rate;
	conn->cap_before = own == ~0ul ? ~0u : own;
	COUNT(capped);
}

/* Once per round trip of a switched response. What the network carries is what was acknowledged since the rate last grew, over
 * the time that took: a single sample can look like any rate, where acknowledgements come in bunches. */
static __always_inline void see_rate(void *who, struct tcp_sock *tp, struct wg_conn *conn)
{
	struct wg_network_key key;
	struct wg_network *network;
	__u64 now, rate;

	if (!tp->rate_interval_us || BPF_CORE_READ_BITFIELD(tp, rate_app_limited))
		return;
	now = bpf_ktime_get_boot_ns();
	rate = (__u64)tp->rate_delivered * tp->mss_cache * 1000000 / tp->rate_interval_us;
	if (rate * 4 > conn->grown_rate * 5) {
		conn->grown_rate = rate;
		conn->grown_ns = now;
		conn->grown_acked = tp->bytes_acked;
		conn->settled = 0;
		return;
	}
	if (conn->settled < SETTLED_ROUNDS && ++conn->settled < SETTLED_ROUNDS)
		return;
	lift_cap(who, tp, conn);
	network = network_of(tp, &key);
	if (network && now > conn->grown_ns)
		/* Microseconds, so that the product fits: 18 TB. */
		remember_carried(network, (tp->bytes_acked - conn->grown_acked) * 1000000 /
						  ((now - conn->grown_ns) / 1000 + 1));
}

/* Puts it on what it has when no response is switched: the configured default, or else its own. */
static __always_inline void set_base(void *who, struct tcp_sock *tp, struct wg_conn *conn, struct wg_settings *s)
{
	conn->steering &= ~SWITCHED;
	lift_cap(who, tp, conn);
	if (s->default_cc[0])
		set_cc(who, tp, conn, s->default_cc);
	else if (is_changed(conn))
		set_cc(who, tp, conn, conn->own);
}

/* Undoes everything, until a policy takes the socket up again. */
static __always_inline void release(void *who, struct tcp_sock *tp, struct wg_conn *conn)
{
	lift_cap(who, tp, conn);
	if (is_changed(conn))
		set_cc(who, tp, conn, conn->own);
	conn->steering &= ~SWITCHED;
	conn->arm = WG_ARM_NONE;
	conn->policy_version = 0;
	conn->generation = 0;
}

/* ---- the callbacks that it needs ---- */

/* The socket's flags with ours brought to what is needed and those of other programs kept. */
static __always_inline __u32 merged_callbacks(struct wg_conn *conn, __u32 current)
{
	__u32 foreign = current & ~(__u32)conn->callbacks;
	__u32 wanted = 0;

	if (!(conn->steering & EXEMPT)) {
		/* Treated it counts; on anything but its own it must notice the expiry. */
		if (conn->arm == WG_ARM_TREATED || is_changed(conn))
			wanted |= BPF_SOCK_OPS_RTT_CB_FLAG;
		if (conn->arm == WG_ARM_TREATED)
			wanted |= BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	}
	conn->callbacks = wanted & ~foreign;
	return foreign | wanted;
}

static __always_inline void set_callbacks(struct bpf_sock_ops *skops, struct wg_conn *conn)
{
	__u32 current = skops->bpf_sock_ops_cb_flags;
	__u32 flags = merged_callbacks(conn, current);

	if (flags != current)
		bpf_sock_ops_cb_flags_set(skops, flags);
}

/* ---- what the policy says of one socket ---- */

static __always_inline bool is_server_port(struct tcp_sock *tp)
{
	__u16 port = tp->inet_conn.icsk_inet.sk.__sk_common.skc_num;

	return bpf_map_lookup_elem(&server_ports, &port) != NULL;
}

/* Counts a response from here on. */
static __always_inline void begin(struct tcp_sock *tp, struct wg_conn *conn)
{
	conn->base = tp->bytes_acked;
	conn->received = tp->bytes_received;
}

/* Gives the socket its place in the policy, and takes back what the policy no longer wants. */
static __always_inline void assign(void *who, struct tcp_sock *tp, struct wg_conn *conn, struct wg_network *network,
				   struct wg_network_key *key, struct wg_settings *s, __u32 generation)
{
	__u8 arm = WG_ARM_NONE;

	conn->generation = generation;
	conn->policy_version = s->policy_version;
	if (!is_ours(who, tp, conn))
		return;
	if (network)
		arm = wg_holds(s->seed, s->epoch, s->share_ppm, key->address) ? WG_ARM_HOLDOUT : WG_ARM_TREATED;
	if (arm != conn->arm) {
		if (conn->arm == WG_ARM_NONE)
			COUNT(matched);
		if (arm == WG_ARM_TREATED) {
			COUNT(treated);
			begin(tp, conn);
		} else if (arm == WG_ARM_HOLDOUT) {
			COUNT(held_out);
		}
		conn->arm = arm;
	}
	if (arm != WG_ARM_TREATED) {
		set_base(who, tp, conn, s);
	} else if (!network || !same_cc(conn->chosen, network->cc)) {
		if (network)
			copy_cc(conn->chosen, network->cc);
		set_base(who, tp, conn, s);
	} else if (!(conn->steering & SWITCHED) || tp->bytes_acked - conn->base < s->switch_after) {
		set_base(who, tp, conn, s); /* the default or the threshold may be another */
	}
}

/* The same for a connection that is open already. */
static __always_inline void reassign(void *who, struct tcp_sock *tp, struct wg_conn *conn, struct wg_network *network,
				     struct wg_network_key *key, struct wg_settings *s, __u32 generation)
{
	bool was_treated = conn->arm == WG_ARM_TREATED;
	bool was_changed = is_changed(conn);
	bool is_treated, changed;

	assign(who, tp, conn, network, key, s, generation);
	is_treated = conn->arm == WG_ARM_TREATED;
	changed = is_changed(conn);
	if (is_treated > was_treated || (is_treated == was_treated && changed > was_changed))
		COUNT(open_set);
	else if (is_treated < was_treated || changed < was_changed)
		COUNT(open_reset);
}

/* ---- responses ---- */

/* Nanoseconds of a tick of the kernel's clock, set by the loader; 0 is unknown. */
const volatile __u64 tick_ns;

/* Whether all data was surely received before the acknowledgement that emptied the send queue. A segment that carries data
 * itself counts as later, and one that came less than two ticks before may have been: jiffies of a machine whose processors are
 * taken away lag. `acking`: the callback is made by that acknowledgement, before the kernel notes its time. */
static __always_inline bool came_before_the_end(struct tcp_sock *tp, bool acking)
{
	__u32 ticks = (__u32)bpf_jiffies64() - tp->inet_conn.icsk_ack.lrcvtime;
	__u64 age_ns = bpf_ktime_get_ns() - tp->delivered_mstamp * 1000;

	if (tp->snd_wl1 != tp->rcv_nxt)
		return false;
	return acking || (tick_ns && ticks > 2 && ticks < 1 << 20 && (ticks - 2) * tick_ns > age_ns);
}

/* Takes notice of the send queue. Empty, it ends a response; what came since it last was not begins the next. `acking`: this is
 * the acknowledgement that empties it, if it is empty. */
static __always_inline void see_queue(void *who, struct tcp_sock *tp, struct wg_conn *conn, struct wg_settings *s,
				      bool acking)
{
	bool during;

	if (!queue_is_empty(tp)) {
		conn->received = tp->bytes_received;
		return;
	}
	/* A pause is not the path's: what comes after it is measured anew. */
	conn->grown_rate = 0;
	conn->settled = 0;
	if (conn->steering & SWITCHED && !s->stay) {
		if (tp->bytes_acked - conn->base < s->switch_after)
			COUNT(violations);
		set_base(who, tp, conn, s);
		COUNT(returned);
	}
	if (tp->bytes_received != conn->received) {
		during = came_before_the_end(tp, acking);
		conn->received = tp->bytes_received;
		if (!during && tp->bytes_acked != conn->base) {
			conn->base = tp->bytes_acked;
			COUNT(boundaries);
		}
	}
}

/* Once per round trip: switches a response that has passed the threshold and is not all delivered. */
static __always_inline void see_progress(void *who, struct tcp_sock *tp, struct wg_conn *conn, struct wg_settings *s)
{
	struct wg_network_key key;
	struct wg_network *network;

	if (conn->steering & SWITCHED) {
		if (s->cap_start)
			see_rate(who, tp, conn);
		return;
	}
	if (queue_is_empty(tp) || tp->bytes_acked - conn->base < s->switch_after)
		return;
	if (!set_cc(who, tp, conn, conn->chosen))
		return;
	conn->steering |= SWITCHED;
	COUNT(switched);
	network = s->cap_start ? network_of(tp, &key) : NULL;
	if (network)
		cap_start(who, tp, conn, network);
}

/* ---- the programs ---- */

static __always_inline bool is_namespace(struct tcp_sock *tp)
{
	return is_in_namespaces(&tp->inet_conn.icsk_inet.sk.__sk_common);
}

static __always_inline void handle_accepted(struct bpf_sock_ops *skops, struct bpf_sock *sk, struct tcp_sock *tp,
					    struct wg_control *c)
{
	__u32 generation = *(volatile __u32 *)&c->generation;
	struct wg_settings *s = settings_of(c, generation);
	struct wg_network_key key;
	struct wg_network *network;
	struct wg_conn *conn;

	if (!generation || is_expired(c) || !is_server_port(tp) || !is_namespace(tp))
		return;
	network = network_of(tp, &key);
	if (!network && !s->default_cc[0])
		return;
	conn = bpf_sk_storage_get(&conns, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!conn)
		return;
	conn->direction = WG_ACCEPTED;
	begin(tp, conn);
	assign(skops, tp, conn, network, &key, s, generation);
	set_callbacks(skops, conn);
}

static __always_inline void handle_active(struct bpf_sock_ops *skops, struct bpf_sock *sk, struct tcp_sock *tp,
					  struct wg_control *c)
{
	__u32 generation = *(volatile __u32 *)&c->generation;
	struct wg_settings *s = settings_of(c, generation);
	struct wg_network_key key;
	struct wg_network *network;
	struct wg_conn *conn;

	conn = bpf_sk_storage_get(&conns, sk, NULL, 0);
	if (!conn || !conn->generation)
		return;
	if (is_expired(c)) {
		release(skops, tp, conn);
		COUNT(expired);
	} else if (!is_namespace(tp)) {
		release(skops, tp, conn);
	} else {
		if (conn->generation != generation) {
			network = network_of(tp, &key);
			reassign(skops, tp, conn, network, &key, s, generation);
		}
		if (conn->arm == WG_ARM_TREATED) {
			see_queue(skops, tp, conn, s, skops->op == BPF_SOCK_OPS_RTT_CB);
			if (skops->op == BPF_SOCK_OPS_RTT_CB)
				see_progress(skops, tp, conn, s);
		}
	}
	set_callbacks(skops, conn);
}

SEC("sockops")
int steer(struct bpf_sock_ops *skops)
{
	struct wg_control *c;
	struct tcp_sock *tp;
	struct bpf_sock *sk;

	switch (skops->op) {
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_RTT_CB:
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		break;
	default:
		return 1;
	}
	sk = skops->sk;
	c = control_of();
	if (!sk || !c)
		return 1;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 1;
	if (skops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		handle_accepted(skops, sk, tp, c);
	else
		handle_active(skops, sk, tp, c);
	return 1;
}

/* Whether the socket was made by a process of the cgroup that the program is attached to, or below it. */
static __always_inline bool is_in_scope(struct tcp_sock *tp, struct wg_control *c)
{
	struct cgroup_subsys_state *css;
	struct cgroup *group;
	int level;

	if (!c->cgroup_id)
		return true;
	group = tp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup;
	for (level = 0; level < 32 && group; level++) {
		if (group->kn->id == c->cgroup_id)
			return true;
		css = group->self.parent;
		group = css ? css->cgroup : NULL;
	}
	return false;
}

/* The open connection's socket where it is one of ours to look at. */
static __always_inline struct tcp_sock *open_socket(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;

	if (!skc)
		return NULL;
	switch (skc->skc_state) {
	case WG_TCP_SYN_SENT:
	case WG_TCP_SYN_RECV:
	case WG_TCP_TIME_WAIT:
	case WG_TCP_CLOSE:
	case WG_TCP_LISTEN:
	case WG_TCP_NEW_SYN_RECV:
		return NULL;
	}
	return bpf_skc_to_tcp_sock(skc);
}

static __always_inline struct wg_listener place_of(struct sock_common *skc)
{
	struct wg_listener place = {
		.netns = skc->skc_net.net->ns.inum,
		.family = skc->skc_family,
		.port = skc->skc_num,
	};

	if (skc->skc_family == AF_INET6) {
		place.address[0] = skc->skc_v6_rcv_saddr.in6_u.u6_addr32[0];
		place.address[1] = skc->skc_v6_rcv_saddr.in6_u.u6_addr32[1];
		place.address[2] = skc->skc_v6_rcv_saddr.in6_u.u6_addr32[2];
		place.address[3] = skc->skc_v6_rcv_saddr.in6_u.u6_addr32[3];
	} else {
		place.address[0] = skc->skc_rcv_saddr;
	}
	return place;
}

static __always_inline bool is_listened_on(struct wg_listener *place, __u64 walk)
{
	__u64 *seen = bpf_map_lookup_elem(&listeners, place);

	return seen && *seen == walk;
}

/* Whether the remote end opened it. One that is older than our programs is taken for accepted where this walk has seen a listener
 * at its address and port, and it was not bound to that port itself: the kernel chooses no port that is listened on at that
 * address. (It lets a listener come later to the port of a connection where both have SO_REUSEADDR or SO_REUSEPORT.) Where nobody
 * listens any more it cannot be told, and it is left alone. */
static __always_inline bool is_accepted(struct tcp_sock *tp, struct wg_conn *conn, __u64 walk)
{
	struct wg_listener place;

	if (conn && conn->direction != WG_DIRECTION_UNKNOWN)
		return conn->direction == WG_ACCEPTED;
	if (BPF_CORE_READ_BITFIELD(tp, inet_conn.icsk_inet.sk.sk_userlocks) & WG_SOCK_BINDPORT_LOCK)
		return false;
	place = place_of(&tp->inet_conn.icsk_inet.sk.__sk_common);
	if (is_listened_on(&place, walk))
		return true;
	__builtin_memset(place.address, 0, sizeof(place.address));
	return is_listened_on(&place, walk);
}

/* Brings the socket's callbacks to what is needed. False: this kernel cannot (before 6.12). */
static __always_inline bool set_callbacks_from_outside(struct tcp_sock *tp, struct wg_conn *conn)
{
	__u32 current = tp->bpf_sock_ops_cb_flags;
	__u32 flags = merged_callbacks(conn, current);

	return flags == current || !bpf_setsockopt(tp, SOL_TCP, WG_TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
}

/* A new policy reaches the connections that are open already; and idle ones on which nothing followed go back. The kernel walks
 * a namespace's listeners first. */
SEC("iter/tcp")
int steer_open(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct wg_control *c = control_of();
	__u64 walk = ctx->meta->session_id;
	struct tcp_sock *tp = open_socket(ctx);
	struct wg_network_key key = {};
	struct wg_listener place;
	struct wg_settings *s;
	struct wg_network *network;
	struct wg_conn *conn;
	__u32 generation;
	__u16 port;

	if (skc && skc->skc_state == WG_TCP_LISTEN) {
		port = skc->skc_num;
		if (bpf_map_lookup_elem(&server_ports, &port)) {
			place = place_of(skc);
			bpf_map_update_elem(&listeners, &place, &walk, BPF_ANY);
		}
		return 0;
	}
	if (!c || !tp)
		return 0;
	generation = *(volatile __u32 *)&c->generation;
	s = settings_of(c, generation);
	conn = bpf_sk_storage_get(&conns, tp, NULL, 0);
	if (!generation || is_expired(c) || !is_server_port(tp) || !is_in_scope(tp, c))
		return 0;
	if (!is_accepted(tp, conn, walk))
		return 0;
	network = network_of(tp, &key);
	if (!conn) {
		if (!network && !s->default_cc[0])
			return 0;
		conn = bpf_sk_storage_get(&conns, tp, NULL, BPF_SK_STORAGE_GET_F_CREATE);
		if (!conn)
			return 0;
	}
	conn->direction = WG_ACCEPTED; /* also once nobody listens any more */
	reassign(tp, tp, conn, network, &key, s, generation);
	if (conn->arm == WG_ARM_TREATED)
		see_queue(tp, tp, conn, s, false);
	if (!set_callbacks_from_outside(tp, conn)) {
		release(tp, tp, conn);
		COUNT(open_unreached);
	}
	return 0;
}

/* Puts every connection back, whoever runs it and whatever the expiry says: the last act, also after a crash. */
SEC("iter/tcp")
int steer_sweep(struct bpf_iter__tcp *ctx)
{
	struct tcp_sock *tp = open_socket(ctx);
	struct wg_conn *conn;
	bool touched;

	if (!tp)
		return 0;
	conn = bpf_sk_storage_get(&conns, tp, NULL, 0);
	if (!conn)
		return 0;
	touched = is_changed(conn) || conn->arm == WG_ARM_TREATED;
	release(tp, tp, conn);
	set_callbacks_from_outside(tp, conn);
	if (touched)
		COUNT(open_reset);
	return 0;
}
