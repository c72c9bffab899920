-- What connections that closed in a minute were like, for each client network, congestion control and arm of the treatment.
--
-- Add up with sum(), and merge the quantiles' states: quantileTDigestWeightedMerge(0.5)(rtt_us). A record of weight n counts n
-- times. A record that Kafka delivered twice counts twice: docs/clickhouse.md has how to make a day anew from `sockets`.
CREATE TABLE IF NOT EXISTS ${database}.networks_1m${on_cluster}
(
    pop LowCardinality(String),
    network String CODEC(ZSTD(1)),
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)),
    cc LowCardinality(String),
    arm LowCardinality(String),
    closes SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    bytes_sent SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    bytes_acked SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    bytes_retrans SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    busy_us SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    rtt_us AggregateFunction(quantileTDigestWeighted, UInt32, UInt32) CODEC(ZSTD(1)),
    delivery_rate_max AggregateFunction(quantileTDigestWeighted, UInt64, UInt32) CODEC(ZSTD(1))
)
ENGINE = ${replicated}AggregatingMergeTree
PARTITION BY toDate(minute)
ORDER BY (pop, network, minute, cc, arm)
TTL toDateTime(minute) + INTERVAL ${ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.networks_1m_mv${on_cluster} TO ${database}.networks_1m AS
WITH greatest(s.weight, 1) AS n
SELECT
    pop,
    network,
    toStartOfMinute(time) AS minute,
    ifNull(s.cc, '') AS cc,
    ifNull(s.arm, '') AS arm,
    sum(toUInt64(n)) AS closes,
    sum(n * ifNull(s.bytes_sent, 0)) AS bytes_sent,
    sum(n * ifNull(s.bytes_acked, 0)) AS bytes_acked,
    sum(n * ifNull(s.bytes_retrans, 0)) AS bytes_retrans,
    sum(n * ifNull(s.busy_us, 0)) AS busy_us,
    quantileTDigestWeightedStateIf(assumeNotNull(s.rtt_us), n, isNotNull(s.rtt_us)) AS rtt_us,
    quantileTDigestWeightedStateIf(assumeNotNull(s.delivery_rate_max), n, isNotNull(s.delivery_rate_max)) AS delivery_rate_max
FROM ${database}.sockets AS s
WHERE kind = 'close'
GROUP BY pop, network, minute, cc, arm;
