//! The table `sockets`: every column's name, type, unit, source, and when it is NULL. One list, from which the Arrow
//! schema, the encoder, the decoder and the documentation are made.
//!
//! Read first: `include/uapi/linux/tcp.h` (`struct tcp_info`), which most columns are, under its names without `tcpi_`.
//!
//! Ground rules:
//! - **NULL means "not known"**, never zero: the kernel did not give the field (it is older than the version named in
//!   the source, or the socket was in SYN-RECV or TIME-WAIT), or the configuration or a database has no answer.
//! - Columns may be added at any place; a file that lacks one reads as NULL there. A column never changes its type or
//!   meaning: a new meaning is a new name.
//! - In the files an address is 16 bytes (IPv4 as `::ffff:a.b.c.d`, RFC 4291 2.5.5.2), since writing it as text would
//!   cost more than all the rest of a record; `weirgate query` shows text. The network is stored as its length alone.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field as ArrowField, Schema, SchemaRef, TimeUnit};

/// One column of the table `sockets` as SQL sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in SQL.
    pub name: &'static str,
    /// Its name in the Parquet files, which differs only where SQL shows text made from bytes.
    pub stored_as: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// The unit, empty where there is none.
    pub unit: &'static str,
    /// Where it comes from, and since which kernel.
    pub source: &'static str,
    /// What it says, in a sentence, and when it is NULL.
    pub about: &'static str,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nanoseconds since 1970 UTC.
    Time,
    /// Few different texts; a dictionary in the files.
    Text,
    /// Text in SQL; 16 bytes in the files.
    Address,
    /// Text in SQL, made of an address and a length; the length in the files.
    Network,
    /// Text in SQL, from the name of the file's folder; not in the files.
    Partition,
    /// True or false.
    Bool,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
}

impl Kind {
    /// The type's name in SQL, as `CAST` takes it; `weirgate query --schema` shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "TIMESTAMP",
            Self::Text | Self::Address | Self::Network | Self::Partition => "VARCHAR",
            Self::Bool => "BOOLEAN",
            Self::U8 => "TINYINT UNSIGNED",
            Self::U16 => "SMALLINT UNSIGNED",
            Self::U32 => "INT UNSIGNED",
            Self::U64 => "BIGINT UNSIGNED",
        }
    }

    fn in_file(self) -> Option<DataType> {
        Some(match self {
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Self::Text => DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8)),
            Self::Address => DataType::FixedSizeBinary(16),
            Self::Network | Self::U8 => DataType::UInt8,
            Self::Partition => return None,
            Self::Bool => DataType::Boolean,
            Self::U16 => DataType::UInt16,
            Self::U32 => DataType::UInt32,
            Self::U64 => DataType::UInt64,
        })
    }
}

/// The columns of `sockets` that are one number of a [`Sample`](weirgate_sockets::sample::Sample) under its own name:
/// `name: type, validity, unit, source, about;`. The validity is a bit of [`crate::presence::validity`].
macro_rules! numbers {
    ($then:ident) => {
        $then! {
            cookie: u64, ALWAYS, "", "sk_cookie", "the connection, together with boot_id and netns";
            netns: u32, NETNS, "", "/proc/PID/ns/net", "inode number of the network namespace";
            cgroup_id: u64, CGROUP_ID, "", "cgroup v2", "the control group that the socket was made in";
            mark: u32, MARK, "", "SO_MARK", "firewall mark";
            policy_version: u32, ALWAYS, "", "weirgate", "the policy in force, 0 where there was none";
            bytes_sent: u64, BYTES_SENT, "B", "tcp_info, 4.19", "data sent, retransmissions included";
            bytes_acked: u64, BYTES_ACKED, "B", "tcp_info, 4.1", "data acknowledged: delivered";
            bytes_retrans: u64, BYTES_RETRANS, "B", "tcp_info, 4.19", "data sent again";
            bytes_received: u64, BYTES_RECEIVED, "B", "tcp_info, 4.1", "data received";
            segs_out: u32, SEGS_OUT, "segments", "tcp_info, 4.2", "segments sent";
            segs_in: u32, SEGS_IN, "segments", "tcp_info, 4.2", "segments received";
            data_segs_out: u32, DATA_SEGS_OUT, "segments", "tcp_info, 4.6", "segments sent that held data";
            data_segs_in: u32, DATA_SEGS_IN, "segments", "tcp_info, 4.6", "segments received that held data";
            total_retrans: u32, TCP_INFO, "segments", "tcp_info", "segments sent again";
            rtt_us: u32, TCP_INFO, "us", "tcp_info", "smoothed round-trip time";
            rttvar_us: u32, TCP_INFO, "us", "tcp_info", "its mean deviation";
            min_rtt_us: u32, MIN_RTT_US, "us", "tcp_info, 4.6", "smallest round-trip time; NULL also before the first";
            rto_us: u32, TCP_INFO, "us", "tcp_info", "retransmission timeout";
            busy_us: u64, BUSY_US, "us", "tcp_info, 4.10", "time with data outstanding";
            rwnd_limited_us: u64, RWND_LIMITED_US, "us", "tcp_info, 4.10", "part of busy_us: receiver's window";
            sndbuf_limited_us: u64, SNDBUF_LIMITED_US, "us", "tcp_info, 4.10", "part of busy_us: send buffer";
            delivery_rate: u64, DELIVERY_RATE, "B/s", "tcp_info, 4.9", "the last delivery-rate sample";
            pacing_rate: u64, PACING_RATE, "B/s", "tcp_info, 3.15", "pacing rate; NULL also where there is no limit";
            snd_cwnd: u32, TCP_INFO, "segments", "tcp_info", "congestion window";
            snd_ssthresh: u32, TCP_INFO, "segments", "tcp_info", "slow-start threshold; 2147483647 at first";
            snd_mss: u32, TCP_INFO, "B", "tcp_info", "data in a full segment";
            unacked: u32, TCP_INFO, "segments", "tcp_info", "segments in flight, lost ones included";
            lost: u32, TCP_INFO, "segments", "tcp_info", "segments in flight that are taken for lost";
            retrans_out: u32, TCP_INFO, "segments", "tcp_info", "segments in flight that were sent again";
            reordering: u32, TCP_INFO, "segments", "tcp_info", "re-ordering that is tolerated before a loss is assumed";
            reord_seen: u32, REORD_SEEN, "", "tcp_info, 4.19", "times that re-ordering was seen";
            dsack_dups: u32, DSACK_DUPS, "segments", "tcp_info, 4.19", "segments the peer reported as duplicate";
            delivered: u32, DELIVERED, "segments", "tcp_info, 4.18", "segments delivered";
            delivered_ce: u32, DELIVERED_CE, "segments", "tcp_info, 4.18", "segments delivered with ECN's CE mark";
            notsent_bytes: u32, NOTSENT_BYTES, "B", "tcp_info, 4.6", "data in the send queue that was never sent";
            bbr_bw: u64, BBR, "B/s", "INET_DIAG_BBRINFO", "BBR's bandwidth estimate; NULL where BBR is not in use";
            bbr_min_rtt_us: u32, BBR, "us", "INET_DIAG_BBRINFO", "BBR's round-trip estimate";
            bbr_pacing_gain: u16, BBR, "1/256", "INET_DIAG_BBRINFO", "BBR's pacing gain, 256 is 1.0";
            bbr_cwnd_gain: u16, BBR, "1/256", "INET_DIAG_BBRINFO", "BBR's window gain, 256 is 1.0";
            rmem_alloc: u32, MEMORY, "B", "INET_DIAG_SKMEMINFO", "memory of the receive queue";
            rcvbuf: u32, MEMORY, "B", "INET_DIAG_SKMEMINFO", "its limit";
            wmem_queued: u32, MEMORY, "B", "INET_DIAG_SKMEMINFO", "memory of the send queue";
            sndbuf: u32, MEMORY, "B", "INET_DIAG_SKMEMINFO", "its limit";
            backlog_drops: u32, MEMORY, "segments", "INET_DIAG_SKMEMINFO", "segments dropped for want of memory";
        }
    };
}
pub(crate) use numbers;

const fn column(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    source: &'static str,
    about: &'static str,
) -> Column {
    Column { name, stored_as: name, kind, unit, source, about }
}

/// The columns that need more than a copy, in the order of the files; [`COLUMNS`] has all.
const LEADING: [Column; 28] = [
    column("time", Kind::Time, "", "civil clock", "when it was seen, UTC"),
    column("boot_time_ns", Kind::U64, "ns", "CLOCK_BOOTTIME", "the same, by the clock that is never set back"),
    column("hour", Kind::Partition, "", "folder", "the hour the record was written in: filter by it to read less"),
    column("host", Kind::Text, "", "host name", "the host"),
    column("pop", Kind::Text, "", "configuration", "the host's point of presence; NULL where none is configured"),
    column("boot_id", Kind::Text, "", "/proc/sys/kernel/random/boot_id", "the boot that cookie and netns belong to"),
    column("kind", Kind::Text, "", "weirgate", "`poll`: seen open; `close`: the connection's last numbers"),
    column(
        "sequence",
        Kind::U32,
        "",
        "weirgate",
        "counts the records of one connection from 0, since the daemon was started; a gap is a lost record",
    ),
    column("direction", Kind::Text, "", "weirgate", "`accepted` or `connected`; NULL where nothing tells"),
    Column { stored_as: "local", ..column("local_address", Kind::Address, "", "inet_diag", "this end's address") },
    column("local_port", Kind::U16, "", "inet_diag", "this end's port; NULL where anonymised"),
    Column {
        stored_as: "remote",
        ..column(
            "remote_address",
            Kind::Address,
            "",
            "inet_diag",
            "the other end's address, or its network's where a reset hid it",
        )
    },
    column("remote_port", Kind::U16, "", "inet_diag", "the other end's port; NULL where anonymised or hidden"),
    column("listener_port", Kind::U16, "", "weirgate", "the port that accepted it; NULL for others"),
    Column {
        stored_as: "network_len",
        ..column("network", Kind::Network, "", "weirgate", "the other end's network, /24 or /56 by default")
    },
    column("asn", Kind::U32, "", "geo database", "the other end's autonomous system; NULL where unknown"),
    column("country", Kind::Text, "", "geo database", "the other end's country, ISO 3166-1; NULL where unknown"),
    column("state", Kind::Text, "", "tcp_states.h", "the state as `ss` names it; of a close, the state it closed from"),
    column("cc", Kind::Text, "", "tcp_congestion_ops", "congestion control in use"),
    column("ca_state", Kind::Text, "", "tcp_info", "`Open`, `Disorder`, `CWR`, `Recovery` or `Loss`"),
    column("arm", Kind::Text, "", "weirgate", "`treated` or `holdout` in a selected network, else NULL"),
    column("switched", Kind::Bool, "", "weirgate", "whether Weirgate ever changed its congestion control"),
    column("app_limited", Kind::Bool, "", "tcp_info, 4.9", "whether delivery_rate was limited by the application"),
    column("ecn", Kind::Bool, "", "tcp_info", "whether ECN was negotiated (RFC 3168)"),
    column("ecn_seen", Kind::Bool, "", "tcp_info", "whether an ECN-capable packet was received"),
    column("timestamps", Kind::Bool, "", "tcp_info", "whether timestamps were negotiated (RFC 7323)"),
    column("sack", Kind::Bool, "", "tcp_info", "whether selective acknowledgements were (RFC 2018)"),
    column(
        "delivery_rate_max",
        Kind::U64,
        "B/s",
        "weirgate",
        "the highest delivery_rate not app_limited that the connection was seen at so far; NULL before the first",
    ),
];

macro_rules! number_columns {
    ($($name:ident: $type:ident, $valid:ident, $unit:literal, $source:literal, $about:literal;)*) => {
        const NUMBERS: &[Column] = &[$(column(stringify!($name), kind_of!($type), $unit, $source, $about)),*];
    };
}
macro_rules! kind_of {
    (u16) => {
        Kind::U16
    };
    (u32) => {
        Kind::U32
    };
    (u64) => {
        Kind::U64
    };
}
numbers!(number_columns);

/// Every column of the table `sockets`, in order.
pub static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| LEADING.iter().chain(NUMBERS).copied().collect());

/// The Arrow schema of the Parquet files: [`COLUMNS`] without the partition, under their stored names.
pub static FILE_SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let fields = COLUMNS.iter().filter_map(|c| Some(ArrowField::new(c.stored_as, c.kind.in_file()?, true)));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
});

/// The key in a file's metadata that tells our files from others; its value is [`FORMAT`].
pub const FORMAT_KEY: &str = "weirgate.sockets";
/// Raised when a reader of the old files would be wrong, which adding a column is not.
pub const FORMAT: &str = "1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_one_name_each_and_say_what_they_are() {
        let mut names: Vec<_> = COLUMNS.iter().map(|c| c.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
        assert!(COLUMNS.iter().all(|c| !c.about.is_empty() && !c.source.is_empty()));
        assert_eq!(FILE_SCHEMA.fields().len(), COLUMNS.len() - 1);
    }
}
