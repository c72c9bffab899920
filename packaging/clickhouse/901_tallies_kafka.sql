-- What arrives by Kafka: messages `Tally` of packaging/proto/weirgate/v1/tallies.proto, on their way to `tallies`.
--
-- Nothing is kept here, as in 900_sockets_kafka.
DROP TABLE IF EXISTS ${database}.tallies_kafka_errors_mv${on_cluster};

DROP TABLE IF EXISTS ${database}.tallies_kafka_mv${on_cluster};

DROP TABLE IF EXISTS ${database}.tallies_kafka${on_cluster};

CREATE TABLE IF NOT EXISTS ${database}.tallies_kafka${on_cluster}
(
    time UInt64,
    round UInt64,
    host String,
    pop String,
    boot_id String,
    network_address FixedString(16),
    network_len UInt8,
    arm String,
    cc String,
    connections UInt64,
    acked UInt64,
    clients UInt64,
    small UInt64,
    no_metric UInt64,
    limited UInt64,
    votes UInt32,
    log Float64,
    sent UInt64,
    retransmitted UInt64,
    rtts UInt32,
    rtt_us UInt64,
    bins Array(UInt16),
    counts Array(UInt32),
    round_length UInt32,
    metric String
)
ENGINE = Kafka
SETTINGS
    kafka_broker_list = ${brokers},
    kafka_topic_list = ${tallies},
    kafka_group_name = ${group},
    kafka_format = ${format},
    kafka_schema = 'weirgate/v1/tallies.proto:Tally',
    kafka_handle_error_mode = 'stream',
    kafka_num_consumers = ${consumers},
    kafka_thread_per_consumer = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.tallies_kafka_mv${on_cluster} TO ${database}.tallies AS
WITH startsWith(k.network_address, unhex('00000000000000000000FFFF')) AS is_ipv4
SELECT
    * EXCEPT (time, round, network_address, network_len),
    fromUnixTimestamp64Nano(toInt64(k.time), 'UTC') AS time,
    toDateTime(k.round, 'UTC') AS round,
    concat(substring(toString(CAST(k.network_address, 'IPv6')), if(is_ipv4, 8, 1)), '/', toString(k.network_len)) AS network
FROM ${database}.tallies_kafka AS k
WHERE length(_error) = 0 AND length(k.bins) = length(k.counts);

-- A message that was read is not there any more as it came: of a sketch that is none, what it says.
CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.tallies_kafka_errors_mv${on_cluster} TO ${database}.sockets_kafka_errors AS
SELECT
    _topic AS topic,
    _partition AS partition,
    _offset AS offset,
    if(length(_error) > 0, _error, concat('a tally of ', toString(length(k.bins)), ' bins and ', toString(length(k.counts)), ' counts')) AS error,
    if(length(_error) > 0, _raw_message, concat(k.host, ' ', k.arm, ' ', k.cc, ' ', toString(k.bins), ' ', toString(k.counts))) AS message
FROM ${database}.tallies_kafka AS k
WHERE length(_error) > 0 OR length(k.bins) != length(k.counts);
