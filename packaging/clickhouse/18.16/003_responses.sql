-- As ../003_responses.sql, for ClickHouse 18.16, which hands a view's rows to views of that view, not to those of its table.
CREATE TABLE IF NOT EXISTS ${database}.responses
(
    time DateTime('UTC'),
    host String,
    pop String,
    network String,
    status UInt16,
    bytes UInt64,
    duration_us UInt64,
    goodput Nullable(UInt64)
)
ENGINE = MergeTree()
PARTITION BY toYYYYMMDD(time)
ORDER BY (pop, network, time);

CREATE TABLE IF NOT EXISTS ${database}.responses_nginx
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

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.responses_nginx_mv TO ${database}.responses AS
WITH cutIPv6(IPv6StringToNum(if(position(remote_addr, ':') = 0, concat('::ffff:', remote_addr), remote_addr)), 9, 1) AS cut
SELECT
    toDateTime(toUInt32(msec), 'UTC') AS time,
    hostname AS host,
    pop,
    if(cut = '::', '', if(substring(cut, 1, 7) = '::ffff:', concat(substring(cut, 8), '/24'), concat(cut, '/56'))) AS network,
    status,
    bytes_sent AS bytes,
    toUInt64(round(request_time * 1000000)) AS duration_us,
    if(duration_us = 0, NULL, intDivOrZero(bytes_sent * 1000000, duration_us)) AS goodput
FROM ${database}.responses_nginx;

CREATE TABLE IF NOT EXISTS ${database}.responses_1m
(
    pop String,
    network String,
    minute DateTime('UTC'),
    responses UInt64,
    bytes_sent UInt64,
    duration_us UInt64,
    large UInt64,
    goodput AggregateFunction(quantileTDigest, UInt64)
)
ENGINE = SummingMergeTree()
PARTITION BY toYYYYMMDD(minute)
ORDER BY (pop, network, minute);

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.responses_1m_mv TO ${database}.responses_1m AS
SELECT
    pop,
    network,
    toStartOfMinute(time) AS minute,
    count() AS responses,
    sum(bytes) AS bytes_sent,
    sum(duration_us) AS duration_us,
    countIf(bytes >= 100000 AND status < 400) AS large,
    quantileTDigestStateIf(assumeNotNull(goodput), bytes >= 100000 AND status < 400 AND isNotNull(goodput)) AS goodput
FROM ${database}.responses_nginx_mv
GROUP BY pop, network, minute;
