-- What was applied, so that `weirgate store init` applies the rest. Run every time.
--
-- Every file here: each statement ends with `;` at the end of a line and does nothing where it was run before, comments are
-- lines of their own, and ${names} are filled in by crates/store/src/clickhouse/file.rs. A file never changes once it was
-- released; what comes later is a file of its own. Comments may change.
CREATE DATABASE IF NOT EXISTS ${database}${on_cluster};

CREATE TABLE IF NOT EXISTS ${database}.migrations${on_cluster}
(
    number UInt32,
    name String,
    checksum String,
    applied_at DateTime DEFAULT now()
)
ENGINE = ${replicated}ReplacingMergeTree(applied_at)
ORDER BY number;
