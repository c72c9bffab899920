-- As ../006_responses_of_connections.sql, for ClickHouse 18.16: whole seconds, and rows stay. A view's rows are not handed to the views
-- of its table there, so lines with a port go into `responses` and `responses_1m` by views of their own.
CREATE TABLE IF NOT EXISTS ${database}.responses_of_connections
(
    time DateTime('UTC'),
    host String,
    pop String,
    connection UInt64,
    status UInt16,
    bytes UInt64,
    duration_us UInt64
)
ENGINE = MergeTree()
PARTITION BY toYYYYMMDD(time)
ORDER BY (pop, time);

CREATE TABLE IF NOT EXISTS ${database}.responses_nginx_port
(
    msec Float64,
    hostname String,
    pop String,
    remote_addr String,
    remote_port String,
    status UInt16,
    bytes_sent UInt64,
    request_time Float64
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.responses_nginx_port_mv TO ${database}.responses AS
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
FROM ${database}.responses_nginx_port;

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.responses_nginx_port_1m_mv TO ${database}.responses_1m AS
SELECT
    pop,
    network,
    toStartOfMinute(time) AS minute,
    count() AS responses,
    sum(bytes) AS bytes_sent,
    sum(duration_us) AS duration_us,
    countIf(bytes >= 100000 AND status < 400) AS large,
    quantileTDigestStateIf(assumeNotNull(goodput), bytes >= 100000 AND status < 400 AND isNotNull(goodput)) AS goodput
FROM ${database}.responses_nginx_port_mv
GROUP BY pop, network, minute;

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.responses_of_connections_mv TO ${database}.responses_of_connections AS
WITH IPv6NumToString(IPv6StringToNum(if(position(remote_addr, ':') = 0, concat('::ffff:', remote_addr), remote_addr))) AS address
SELECT
    toDateTime(toUInt32(msec), 'UTC') AS time,
    hostname AS host,
    pop,
    sipHash64(concat(address, ' ', toString(toUInt16OrZero(remote_port)))) AS connection,
    status,
    bytes_sent AS bytes,
    toUInt64(round(request_time * 1000000)) AS duration_us
FROM ${database}.responses_nginx_port
WHERE toUInt16OrZero(remote_port) > 0 AND address != '::';
