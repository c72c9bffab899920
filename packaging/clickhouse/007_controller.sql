-- Which controller decides, and what controllers know of each point of presence, so that another can take over.
--
-- A claim is a row with a higher `epoch` than all others; of several with the same one the first holds, by `since`, then by `holder`.
-- The holder renews it by the same row with a later `renewed`, and whoever finds it too old may claim the next epoch. Both are the
-- server's time, in seconds since 1970.
CREATE TABLE IF NOT EXISTS ${database}.controller_lease${on_cluster}
(
    name String,
    epoch UInt64,
    holder String,
    since UInt32,
    renewed UInt32
)
ENGINE = ${replicated}ReplacingMergeTree(renewed)
ORDER BY (name, epoch, holder, since);

-- `memory` is in hexadecimal digits; the row with the highest `version` counts.
CREATE TABLE IF NOT EXISTS ${database}.controller_memory${on_cluster}
(
    pop String,
    version UInt64,
    memory String CODEC(ZSTD(1))
)
ENGINE = ${replicated}ReplacingMergeTree(version)
ORDER BY pop;
