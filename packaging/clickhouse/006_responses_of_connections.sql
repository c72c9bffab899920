-- Responses with the connection that carried them, for who decides by them: the log's lines with the client's port as well.
--
-- `connection` is a hash of the client's address and port, by which the record of that connection is found in `sockets`; the
-- address itself is not kept. Rows stay for two days, whatever other tables' do.
CREATE TABLE IF NOT EXISTS ${database}.responses_of_connections${on_cluster}
(
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    host LowCardinality(String),
    pop LowCardinality(String),
    connection UInt64 CODEC(ZSTD(1)),
    status UInt16 CODEC(ZSTD(1)),
    bytes UInt64 CODEC(ZSTD(1)),
    duration_us UInt64 CODEC(ZSTD(1))
)
ENGINE = ${replicated}MergeTree
PARTITION BY toDate(time)
ORDER BY (pop, time)
TTL toDateTime(time) + INTERVAL 2 DAY
SETTINGS ttl_only_drop_parts = 1;

-- Where lines are inserted in place of `responses_nginx`, which gets them from here. `remote_port` is empty where there is none,
-- as of a Unix socket.
CREATE TABLE IF NOT EXISTS ${database}.responses_nginx_port${on_cluster}
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

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.responses_nginx_port_mv${on_cluster} TO ${database}.responses_nginx AS
SELECT msec, hostname, pop, remote_addr, status, bytes_sent, request_time
FROM ${database}.responses_nginx_port;

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.responses_of_connections_mv${on_cluster} TO ${database}.responses_of_connections AS
WITH toIPv6OrDefault(remote_addr) AS address
SELECT
    toDateTime64(msec, 3, 'UTC') AS time,
    hostname AS host,
    pop,
    sipHash64(concat(toString(address), ' ', toString(toUInt16OrZero(remote_port)))) AS connection,
    status,
    bytes_sent AS bytes,
    toUInt64(round(request_time * 1000000)) AS duration_us
FROM ${database}.responses_nginx_port
WHERE toUInt16OrZero(remote_port) > 0 AND toString(address) != '::';
