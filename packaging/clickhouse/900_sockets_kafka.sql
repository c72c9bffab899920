-- What arrives by Kafka: messages `Socket` of packaging/proto/weirgate/v1/sockets.proto, on their way to `sockets`.
--
-- Nothing is kept here, and Kafka knows how far the group has read: so this file may change, and what it makes is made anew when
-- it, or what is filled in, has. Its columns are of plain types: the server makes them anew for each message, and a dictionary
-- (LowCardinality) for each message took a fifth of its time, and a third where messages are short.
DROP TABLE IF EXISTS ${database}.sockets_kafka_errors_mv${on_cluster};

DROP TABLE IF EXISTS ${database}.sockets_kafka_mv${on_cluster};

DROP TABLE IF EXISTS ${database}.sockets_kafka${on_cluster};

CREATE TABLE IF NOT EXISTS ${database}.sockets_kafka${on_cluster}
(
    time UInt64,
    boot_time_ns Nullable(UInt64),
    host String,
    pop String,
    boot_id String,
    kind String,
    sequence UInt32,
    direction Nullable(String),
    local_address FixedString(16),
    local_port Nullable(UInt16),
    remote_address FixedString(16),
    remote_port Nullable(UInt16),
    listener_port Nullable(UInt16),
    network_len UInt8,
    asn Nullable(UInt32),
    country Nullable(String),
    state Nullable(String),
    cc Nullable(String),
    ca_state Nullable(String),
    arm Nullable(String),
    switched Nullable(Bool),
    app_limited Nullable(Bool),
    ecn Nullable(Bool),
    ecn_seen Nullable(Bool),
    timestamps Nullable(Bool),
    sack Nullable(Bool),
    delivery_rate_max Nullable(UInt64),
    cookie UInt64,
    netns UInt32,
    cgroup_id Nullable(UInt64),
    mark Nullable(UInt32),
    policy_version Nullable(UInt32),
    bytes_sent Nullable(UInt64),
    bytes_acked Nullable(UInt64),
    bytes_retrans Nullable(UInt64),
    bytes_received Nullable(UInt64),
    segs_out Nullable(UInt32),
    segs_in Nullable(UInt32),
    data_segs_out Nullable(UInt32),
    data_segs_in Nullable(UInt32),
    total_retrans Nullable(UInt32),
    rtt_us Nullable(UInt32),
    rttvar_us Nullable(UInt32),
    min_rtt_us Nullable(UInt32),
    rto_us Nullable(UInt32),
    busy_us Nullable(UInt64),
    rwnd_limited_us Nullable(UInt64),
    sndbuf_limited_us Nullable(UInt64),
    delivery_rate Nullable(UInt64),
    pacing_rate Nullable(UInt64),
    snd_cwnd Nullable(UInt32),
    snd_ssthresh Nullable(UInt32),
    snd_mss Nullable(UInt32),
    unacked Nullable(UInt32),
    lost Nullable(UInt32),
    retrans_out Nullable(UInt32),
    reordering Nullable(UInt32),
    reord_seen Nullable(UInt32),
    dsack_dups Nullable(UInt32),
    delivered Nullable(UInt32),
    delivered_ce Nullable(UInt32),
    notsent_bytes Nullable(UInt32),
    bbr_bw Nullable(UInt64),
    bbr_min_rtt_us Nullable(UInt32),
    bbr_pacing_gain Nullable(UInt16),
    bbr_cwnd_gain Nullable(UInt16),
    rmem_alloc Nullable(UInt32),
    rcvbuf Nullable(UInt32),
    wmem_queued Nullable(UInt32),
    sndbuf Nullable(UInt32),
    backlog_drops Nullable(UInt32),
    weight UInt32
)
ENGINE = Kafka
SETTINGS
    kafka_broker_list = ${brokers},
    kafka_topic_list = ${topic},
    kafka_group_name = ${group},
    kafka_format = ${format},
    kafka_schema = 'weirgate/v1/sockets.proto:Socket',
    kafka_handle_error_mode = 'stream',
    kafka_num_consumers = ${consumers},
    kafka_thread_per_consumer = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.sockets_kafka_mv${on_cluster} TO ${database}.sockets AS
WITH
    startsWith(k.remote_address, unhex('00000000000000000000FFFF')) AS is_ipv4,
    IPv6CIDRToRange(CAST(k.remote_address, 'IPv6'), toUInt8(k.network_len + if(is_ipv4, 96, 0))).1 AS first
SELECT
    * EXCEPT (time, local_address, remote_address, network_len, weight),
    fromUnixTimestamp64Nano(toInt64(k.time), 'UTC') AS time,
    CAST(k.local_address, 'IPv6') AS local_address,
    CAST(k.remote_address, 'IPv6') AS remote_address,
    concat(substring(toString(first), if(is_ipv4, 8, 1)), '/', toString(k.network_len)) AS network,
    greatest(k.weight, 1) AS weight
FROM ${database}.sockets_kafka AS k
WHERE length(_error) = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.sockets_kafka_errors_mv${on_cluster} TO ${database}.sockets_kafka_errors AS
SELECT
    _topic AS topic,
    _partition AS partition,
    _offset AS offset,
    _error AS error,
    _raw_message AS message
FROM ${database}.sockets_kafka
WHERE length(_error) > 0;
