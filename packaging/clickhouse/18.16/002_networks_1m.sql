-- As ../002_networks_1m.sql, for ClickHouse 18.16, which has no SimpleAggregateFunction: SummingMergeTree adds up, and merges states.
CREATE TABLE IF NOT EXISTS ${database}.networks_1m
(
    pop String,
    network String,
    minute DateTime('UTC'),
    cc String,
    arm String,
    closes UInt64,
    bytes_sent UInt64,
    bytes_acked UInt64,
    bytes_retrans UInt64,
    busy_us UInt64,
    rtt_us AggregateFunction(quantileTDigestWeighted, UInt32, UInt32),
    delivery_rate_max AggregateFunction(quantileTDigestWeighted, UInt64, UInt32)
)
ENGINE = SummingMergeTree()
PARTITION BY toYYYYMMDD(minute)
ORDER BY (pop, network, minute, cc, arm);

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.networks_1m_mv TO ${database}.networks_1m AS
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
