-- What the connections of each client network came to at each host, in each round, where hosts sum that up.
--
-- Those of one round, network, arm and congestion control add up: numbers by sum(), `clients` by groupBitOr(), the sketch of the votes by
-- sumMap(bins, counts). The last part of the key tells copies: Kafka delivers at least once, and ReplacingMergeTree drops one of two as it
-- merges, `FROM tallies FINAL` before that. `arm` is empty where the network is not selected.
CREATE TABLE IF NOT EXISTS ${database}.tallies${on_cluster}
(
    round DateTime('UTC') CODEC(Delta, ZSTD(1)),
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    host LowCardinality(String),
    pop LowCardinality(String),
    boot_id LowCardinality(String),
    network String CODEC(ZSTD(1)),
    arm LowCardinality(String),
    cc LowCardinality(String),
    connections UInt64 CODEC(ZSTD(1)),
    acked UInt64 CODEC(ZSTD(1)),
    clients UInt64 CODEC(ZSTD(1)),
    small UInt64 CODEC(ZSTD(1)),
    no_metric UInt64 CODEC(ZSTD(1)),
    limited UInt64 CODEC(ZSTD(1)),
    votes UInt32 CODEC(ZSTD(1)),
    log Float64 CODEC(ZSTD(1)),
    sent UInt64 CODEC(ZSTD(1)),
    retransmitted UInt64 CODEC(ZSTD(1)),
    rtts UInt32 CODEC(ZSTD(1)),
    rtt_us UInt64 CODEC(ZSTD(1)),
    bins Array(UInt16) CODEC(ZSTD(1)),
    counts Array(UInt32) CODEC(ZSTD(1))
)
ENGINE = ${replicated}ReplacingMergeTree
PARTITION BY toDate(round)
PRIMARY KEY (pop, round)
ORDER BY (pop, round, network, arm, cc, host, boot_id, time)
TTL toDateTime(round) + INTERVAL ${ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1;
