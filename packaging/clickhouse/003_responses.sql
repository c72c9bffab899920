-- The goodput of responses, from the access log of a web server.
--
-- The time in a log ends when the last byte was handed to the kernel, which takes some megabytes at once: the goodput of a small
-- response says little, so `responses_1m` has that of responses from 100 KB on. Lines of a log have no names: those that are
-- inserted twice count twice.
CREATE TABLE IF NOT EXISTS ${database}.responses${on_cluster}
(
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    host LowCardinality(String),
    pop LowCardinality(String),
    network String CODEC(ZSTD(1)),
    status UInt16 CODEC(ZSTD(1)),
    bytes UInt64 CODEC(ZSTD(1)),
    duration_us UInt64 CODEC(ZSTD(1)),
    goodput Nullable(UInt64) DEFAULT if(duration_us = 0, NULL, intDivOrZero(bytes * 1000000, duration_us)) CODEC(ZSTD(1))
)
ENGINE = ${replicated}MergeTree
PARTITION BY toDate(time)
ORDER BY (pop, network, time)
TTL toDateTime(time) + INTERVAL ${ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1;

-- Where lines are inserted, in JSON under nginx's names. It keeps none: of the client's address only the network stays.
CREATE TABLE IF NOT EXISTS ${database}.responses_nginx${on_cluster}
(
    msec Float64,
    hostname String,
    pop String,
    remote_addr String,
    status UInt16,
    bytes_sent UInt64,
    request_time Float64
)
ENGINE = Null;

-- cutIPv6 leaves a /56, and a /24 of IPv4, which it writes as ::ffff:198.51.100.0.
CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.responses_nginx_mv${on_cluster} TO ${database}.responses AS
WITH cutIPv6(toIPv6OrDefault(remote_addr), 9, 1) AS cut
SELECT
    toDateTime64(msec, 3, 'UTC') AS time,
    hostname AS host,
    pop,
    multiIf(cut = '::', '', startsWith(cut, '::ffff:'), concat(substring(cut, 8), '/24'), concat(cut, '/56')) AS network,
    status,
    bytes_sent AS bytes,
    toUInt64(round(request_time * 1000000)) AS duration_us,
    if(duration_us = 0, NULL, intDivOrZero(bytes_sent * 1000000, duration_us)) AS goodput
FROM ${database}.responses_nginx;

CREATE TABLE IF NOT EXISTS ${database}.responses_1m${on_cluster}
(
    pop LowCardinality(String),
    network String CODEC(ZSTD(1)),
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)),
    responses SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    bytes_sent SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    duration_us SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    large SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    goodput AggregateFunction(quantileTDigest, UInt64) CODEC(ZSTD(1))
)
ENGINE = ${replicated}AggregatingMergeTree
PARTITION BY toDate(minute)
ORDER BY (pop, network, minute)
TTL toDateTime(minute) + INTERVAL ${ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.responses_1m_mv${on_cluster} TO ${database}.responses_1m AS
SELECT
    pop,
    network,
    toStartOfMinute(time) AS minute,
    count() AS responses,
    sum(bytes) AS bytes_sent,
    sum(duration_us) AS duration_us,
    countIf(bytes >= 100000 AND status < 400) AS large,
    quantileTDigestStateIf(assumeNotNull(goodput), bytes >= 100000 AND status < 400 AND isNotNull(goodput)) AS goodput
FROM ${database}.responses
GROUP BY pop, network, minute;
