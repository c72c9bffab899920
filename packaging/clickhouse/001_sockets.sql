-- Every record of every connection, under the names that `weirgate query --schema` explains.
--
-- NULL means "not known", never zero. Columns of the key cannot be NULL: an empty pop and a netns of 0 are not known.
--
-- Kafka delivers at least once. A record is (boot_id, netns, cookie, sequence), and a second copy of it equals the first, so the
-- key ends with these: ReplacingMergeTree drops one of the two as it merges a day's parts, and `FROM sockets FINAL` before that.
-- The primary index is the key's beginning, which is all that queries look for and a third of the memory.
CREATE TABLE IF NOT EXISTS ${database}.sockets${on_cluster}
(
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    boot_time_ns Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    host LowCardinality(String),
    pop LowCardinality(String),
    boot_id LowCardinality(String),
    kind LowCardinality(String),
    sequence UInt32 CODEC(ZSTD(1)),
    direction LowCardinality(Nullable(String)),
    local_address IPv6 CODEC(ZSTD(1)),
    local_port Nullable(UInt16) CODEC(ZSTD(1)),
    remote_address IPv6 CODEC(ZSTD(1)),
    remote_port Nullable(UInt16) CODEC(ZSTD(1)),
    listener_port Nullable(UInt16) CODEC(ZSTD(1)),
    network String CODEC(ZSTD(1)),
    asn Nullable(UInt32) CODEC(ZSTD(1)),
    country LowCardinality(Nullable(String)),
    state LowCardinality(Nullable(String)),
    cc LowCardinality(Nullable(String)),
    ca_state LowCardinality(Nullable(String)),
    arm LowCardinality(Nullable(String)),
    switched Nullable(Bool),
    app_limited Nullable(Bool),
    ecn Nullable(Bool),
    ecn_seen Nullable(Bool),
    timestamps Nullable(Bool),
    sack Nullable(Bool),
    delivery_rate_max Nullable(UInt64) CODEC(ZSTD(1)),
    cookie UInt64 CODEC(ZSTD(1)),
    netns UInt32 CODEC(ZSTD(1)),
    cgroup_id Nullable(UInt64) CODEC(ZSTD(1)),
    mark Nullable(UInt32) CODEC(ZSTD(1)),
    policy_version Nullable(UInt32) CODEC(ZSTD(1)),
    bytes_sent Nullable(UInt64) CODEC(ZSTD(1)),
    bytes_acked Nullable(UInt64) CODEC(ZSTD(1)),
    bytes_retrans Nullable(UInt64) CODEC(ZSTD(1)),
    bytes_received Nullable(UInt64) CODEC(ZSTD(1)),
    segs_out Nullable(UInt32) CODEC(ZSTD(1)),
    segs_in Nullable(UInt32) CODEC(ZSTD(1)),
    data_segs_out Nullable(UInt32) CODEC(ZSTD(1)),
    data_segs_in Nullable(UInt32) CODEC(ZSTD(1)),
    total_retrans Nullable(UInt32) CODEC(ZSTD(1)),
    rtt_us Nullable(UInt32) CODEC(ZSTD(1)),
    rttvar_us Nullable(UInt32) CODEC(ZSTD(1)),
    min_rtt_us Nullable(UInt32) CODEC(ZSTD(1)),
    rto_us Nullable(UInt32) CODEC(ZSTD(1)),
    busy_us Nullable(UInt64) CODEC(ZSTD(1)),
    rwnd_limited_us Nullable(UInt64) CODEC(ZSTD(1)),
    sndbuf_limited_us Nullable(UInt64) CODEC(ZSTD(1)),
    delivery_rate Nullable(UInt64) CODEC(ZSTD(1)),
    pacing_rate Nullable(UInt64) CODEC(ZSTD(1)),
    snd_cwnd Nullable(UInt32) CODEC(ZSTD(1)),
    snd_ssthresh Nullable(UInt32) CODEC(ZSTD(1)),
    snd_mss Nullable(UInt32) CODEC(ZSTD(1)),
    unacked Nullable(UInt32) CODEC(ZSTD(1)),
    lost Nullable(UInt32) CODEC(ZSTD(1)),
    retrans_out Nullable(UInt32) CODEC(ZSTD(1)),
    reordering Nullable(UInt32) CODEC(ZSTD(1)),
    reord_seen Nullable(UInt32) CODEC(ZSTD(1)),
    dsack_dups Nullable(UInt32) CODEC(ZSTD(1)),
    delivered Nullable(UInt32) CODEC(ZSTD(1)),
    delivered_ce Nullable(UInt32) CODEC(ZSTD(1)),
    notsent_bytes Nullable(UInt32) CODEC(ZSTD(1)),
    bbr_bw Nullable(UInt64) CODEC(ZSTD(1)),
    bbr_min_rtt_us Nullable(UInt32) CODEC(ZSTD(1)),
    bbr_pacing_gain Nullable(UInt16) CODEC(ZSTD(1)),
    bbr_cwnd_gain Nullable(UInt16) CODEC(ZSTD(1)),
    rmem_alloc Nullable(UInt32) CODEC(ZSTD(1)),
    rcvbuf Nullable(UInt32) CODEC(ZSTD(1)),
    wmem_queued Nullable(UInt32) CODEC(ZSTD(1)),
    sndbuf Nullable(UInt32) CODEC(ZSTD(1)),
    backlog_drops Nullable(UInt32) CODEC(ZSTD(1)),
    weight UInt32 DEFAULT 1 CODEC(ZSTD(1))
)
ENGINE = ${replicated}ReplacingMergeTree
PARTITION BY toDate(time)
PRIMARY KEY (pop, network, time)
ORDER BY (pop, network, time, boot_id, netns, cookie, sequence)
TTL toDateTime(time) + INTERVAL ${ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1;
