-- Messages that could not be read, with the reason: they are skipped, and hold nothing up.
CREATE TABLE IF NOT EXISTS ${database}.sockets_kafka_errors${on_cluster}
(
    time DateTime('UTC') DEFAULT now(),
    topic LowCardinality(String),
    partition UInt64,
    offset UInt64,
    error String CODEC(ZSTD(1)),
    message String CODEC(ZSTD(1))
)
ENGINE = ${replicated}MergeTree
PARTITION BY toDate(time)
ORDER BY (topic, partition, offset)
TTL time + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1;
