-- What tallies are votes of: rows of other round lengths (seconds) or metrics do not add up, and the controller counts them apart. Rows of before
-- say 0 and nothing.
ALTER TABLE ${database}.tallies${on_cluster} ADD COLUMN IF NOT EXISTS round_length UInt32 CODEC(ZSTD(1));

ALTER TABLE ${database}.tallies${on_cluster} ADD COLUMN IF NOT EXISTS metric LowCardinality(String) CODEC(ZSTD(1));
