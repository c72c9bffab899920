//! The message `Socket`: which field has which number, and which are sent unless all are asked for. The schema file
//! `packaging/proto/weirgate/v1/sockets.proto` is made from this list, and a test holds both equal.
//!
//! Rules. A number is never given twice and never changes its type or meaning; a new field takes the next free number.
//! Every field is `optional`: what is absent is not known, as NULL is in the files. Names, units and meanings are those of
//! [`crate::schema::COLUMNS`], but for addresses, which are bytes, and the network, which is its length.

use std::fmt::Write;

use crate::schema::COLUMNS;

/// Every field: `number set kind name VALIDITY (value);`. `set` is `lean` for what is sent by default, `all` for the rest: what
/// follows from other fields or is seldom asked for. `small` is a number that is mostly below 128, which is a guess that costs nothing but
/// time. The value may use the two names that the macro is given: a record, and its
/// sample as it may be shown.
macro_rules! socket_fields {
    ($then:ident, $r:ident, $s:ident) => {
        $then! {
            1 lean number time ALWAYS ($r.time.as_nanos());
            2 lean number cookie ALWAYS ($s.cookie);
            3 lean number sequence ALWAYS ($r.sequence);
            4 lean bytes remote_address ALWAYS (&$s.remote);
            5 lean number remote_port REMOTE_PORT ($s.remote_port);
            6 lean number bytes_sent BYTES_SENT ($s.bytes_sent);
            7 lean number bytes_acked BYTES_ACKED ($s.bytes_acked);
            8 lean number bytes_received BYTES_RECEIVED ($s.bytes_received);
            9 lean number rtt_us TCP_INFO ($s.rtt_us);
            10 lean number rttvar_us TCP_INFO ($s.rttvar_us);
            11 lean number min_rtt_us MIN_RTT_US ($s.min_rtt_us);
            12 lean number busy_us BUSY_US ($s.busy_us);
            13 lean number delivery_rate DELIVERY_RATE ($s.delivery_rate);
            14 lean small snd_cwnd TCP_INFO ($s.snd_cwnd);
            15 lean number data_segs_out DATA_SEGS_OUT ($s.data_segs_out);
            16 lean same host ALWAYS ();
            17 lean same pop ALWAYS ();
            18 lean same boot_id ALWAYS ();
            19 lean text kind ALWAYS (KINDS[usize::from($s.kind() == Kind::Close)]);
            20 lean text direction DIRECTION (DIRECTIONS[usize::from($r.direction == Direction::Connected)]);
            21 lean bytes local_address ALWAYS (&$s.local);
            22 lean number local_port LOCAL_PORT ($s.local_port);
            23 lean number listener_port LISTENER_PORT ($r.listener_port);
            24 lean small network_len ALWAYS ($r.network.len());
            25 lean number asn ASN ($r.asn);
            26 lean bytes country COUNTRY (&$r.country);
            27 lean text state ALWAYS (state::name($s.state));
            28 lean bytes cc CC_KNOWN ($s.cc.name());
            29 lean text arm ARM (ARMS[usize::from($s.arm() == Arm::Holdout)]);
            30 lean flag switched ALWAYS ($s.is(flag::SWITCHED));
            31 lean flag app_limited DELIVERY_RATE ($s.is(flag::APP_LIMITED));
            32 lean number delivery_rate_max DELIVERY_RATE_MAX ($r.delivery_rate_max);
            33 lean number netns NETNS ($s.netns);
            34 lean small policy_version ALWAYS ($s.policy_version);
            35 lean small bytes_retrans BYTES_RETRANS ($s.bytes_retrans);
            36 lean small rwnd_limited_us RWND_LIMITED_US ($s.rwnd_limited_us);
            37 lean small sndbuf_limited_us SNDBUF_LIMITED_US ($s.sndbuf_limited_us);
            38 lean number snd_mss TCP_INFO ($s.snd_mss);
            39 lean small lost TCP_INFO ($s.lost);
            40 lean small total_retrans TCP_INFO ($s.total_retrans);
            41 lean once weight ALWAYS ();
            42 all number boot_time_ns ALWAYS ($s.time_ns);
            43 all text ca_state TCP_INFO (CA_STATES[usize::from($s.ca_state).min(CA_STATES.len() - 1)]);
            44 all flag ecn TCP_INFO ($s.is(flag::ECN));
            45 all flag ecn_seen TCP_INFO ($s.is(flag::ECN_SEEN));
            46 all flag timestamps TCP_INFO ($s.is(flag::TIMESTAMPS));
            47 all flag sack TCP_INFO ($s.is(flag::SACK));
            48 all number cgroup_id CGROUP_ID ($s.cgroup_id);
            49 all number mark MARK ($s.mark);
            50 all number segs_out SEGS_OUT ($s.segs_out);
            51 all number segs_in SEGS_IN ($s.segs_in);
            52 all number data_segs_in DATA_SEGS_IN ($s.data_segs_in);
            53 all number rto_us TCP_INFO ($s.rto_us);
            54 all number pacing_rate PACING_RATE ($s.pacing_rate);
            55 all number snd_ssthresh TCP_INFO ($s.snd_ssthresh);
            56 all number unacked TCP_INFO ($s.unacked);
            57 all number retrans_out TCP_INFO ($s.retrans_out);
            58 all number reordering TCP_INFO ($s.reordering);
            59 all number reord_seen REORD_SEEN ($s.reord_seen);
            60 all number dsack_dups DSACK_DUPS ($s.dsack_dups);
            61 all number delivered DELIVERED ($s.delivered);
            62 all number delivered_ce DELIVERED_CE ($s.delivered_ce);
            63 all number notsent_bytes NOTSENT_BYTES ($s.notsent_bytes);
            64 all number bbr_bw BBR ($s.bbr_bw);
            65 all number bbr_min_rtt_us BBR ($s.bbr_min_rtt_us);
            66 all number bbr_pacing_gain BBR ($s.bbr_pacing_gain);
            67 all number bbr_cwnd_gain BBR ($s.bbr_cwnd_gain);
            68 all number rmem_alloc MEMORY ($s.rmem_alloc);
            69 all number rcvbuf MEMORY ($s.rcvbuf);
            70 all number wmem_queued MEMORY ($s.wmem_queued);
            71 all number sndbuf MEMORY ($s.sndbuf);
            72 all number backlog_drops MEMORY ($s.backlog_drops);
        }
    };
}
pub(crate) use socket_fields;

macro_rules! list {
    ($($number:literal $set:ident $kind:ident $name:ident $valid:ident ($($value:tt)*);)*) => {
        &[$(Field { number: $number, is_lean: is_lean!($set), name: stringify!($name) }),*]
    };
}
macro_rules! is_lean {
    (lean) => {
        true
    };
    (all) => {
        false
    };
}
pub(crate) use is_lean;

/// One field of the message `Socket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its number on the wire.
    pub number: u32,
    /// Whether it is sent where not all fields are asked for.
    pub is_lean: bool,
    /// Its name.
    pub name: &'static str,
}

/// Every field, in the order of their numbers.
pub const FIELDS: &[Field] = socket_fields!(list, record, sample);

/// The text of `packaging/proto/weirgate/v1/sockets.proto`.
pub fn proto() -> String {
    let mut text = String::from(
        "// One observation of one TCP connection, as Weirgate sends it to Kafka. Made from crates/store/src/export/fields.rs.\n\
         //\n\
         // Absent is \"not known\". A message in Kafka is one of these, or several of one client network, each behind its length\n\
         // (varint), by `[export.kafka] form`. A number never changes its type or meaning.\n\
         syntax = \"proto3\";\n\npackage weirgate.v1;\n\nmessage Socket {\n",
    );
    for field in FIELDS {
        let (kind, about) = described(field.name);
        let _ = writeln!(text, "  // {about}\n  optional {kind} {} = {};", field.name, field.number);
    }
    text.push_str("}\n");
    text
}

/// The type of a field, and what it says.
fn described(name: &str) -> (&'static str, String) {
    use crate::schema::Kind;
    match name {
        "network_len" => {
            return (
                "uint32",
                "Leading bits of remote_address that are its client network, of 32 for IPv4.".to_owned(),
            );
        }
        "weight" => {
            return (
                "uint32",
                "This record stands for so many: some were left out for want of room. Absent: 1.".to_owned(),
            );
        }
        _ => {}
    }
    let column = COLUMNS.iter().find(|column| column.name == name).expect("a field is a column, a test says");
    let kind = match column.kind {
        Kind::Time | Kind::U64 => "uint64",
        Kind::U8 | Kind::U16 | Kind::U32 => "uint32",
        Kind::Text | Kind::Partition | Kind::Network => "string",
        Kind::Address => "bytes",
        Kind::Bool => "bool",
    };
    let unit = match (column.kind, column.unit) {
        (Kind::Time, _) => ", nanoseconds since 1970".to_owned(),
        (Kind::Address, _) => ": 16 bytes, IPv4 as ::ffff:a.b.c.d".to_owned(),
        (_, "") => String::new(),
        (_, unit) => format!(", {unit}"),
    };
    // NULL is SQL's word for what is absent here.
    (kind, format!("{}{unit}.", column.about.replace("NULL", "absent")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_schema_file_is_this_list() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/proto/weirgate/v1/sockets.proto");
        if std::env::var_os("WEIRGATE_WRITE_PROTO").is_some() {
            std::fs::write(&file, proto()).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(written, proto(), "run this test with WEIRGATE_WRITE_PROTO=1 after a field was added");
    }

    /// What was sent has to be read for as long as there are messages of it: this list grows at its end, and changes nowhere else.
    const FIRST: &str = "\
        uint64 time, uint64 cookie, uint32 sequence, bytes remote_address, uint32 remote_port, uint64 bytes_sent, uint64 bytes_acked, \
        uint64 bytes_received, uint32 rtt_us, uint32 rttvar_us, uint32 min_rtt_us, uint64 busy_us, uint64 delivery_rate, uint32 snd_cwnd, \
        uint32 data_segs_out, string host, string pop, string boot_id, string kind, string direction, bytes local_address, uint32 \
        local_port, uint32 listener_port, uint32 network_len, uint32 asn, string country, string state, string cc, string arm, bool \
        switched, bool app_limited, uint64 delivery_rate_max, uint32 netns, uint32 policy_version, uint64 bytes_retrans, uint64 \
        rwnd_limited_us, uint64 sndbuf_limited_us, uint32 snd_mss, uint32 lost, uint32 total_retrans, uint32 weight, uint64 boot_time_ns, \
        string ca_state, bool ecn, bool ecn_seen, bool timestamps, bool sack, uint64 cgroup_id, uint32 mark, uint32 segs_out, uint32 \
        segs_in, uint32 data_segs_in, uint32 rto_us, uint64 pacing_rate, uint32 snd_ssthresh, uint32 unacked, uint32 retrans_out, uint32 \
        reordering, uint32 reord_seen, uint32 dsack_dups, uint32 delivered, uint32 delivered_ce, uint32 notsent_bytes, uint64 bbr_bw, \
        uint32 bbr_min_rtt_us, uint32 bbr_pacing_gain, uint32 bbr_cwnd_gain, uint32 rmem_alloc, uint32 rcvbuf, uint32 wmem_queued, uint32 \
        sndbuf, uint32 backlog_drops";

    #[test]
    fn a_number_never_changes_its_meaning() {
        let fields = FIELDS.iter().map(|field| format!("{} {}", described(field.name).0, field.name));
        let fields: Vec<String> = fields.collect();
        assert_eq!(fields.join(", "), FIRST);
    }

    #[test]
    fn every_column_is_a_field_and_numbers_count_up() {
        let fields: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
        for column in COLUMNS.iter().filter(|column| !matches!(column.name, "hour" | "network")) {
            assert!(fields.contains(&column.name), "{}", column.name);
        }
        assert_eq!(fields.len(), COLUMNS.len(), "the network as its length, and a weight in place of the hour");
        assert!(FIELDS.iter().zip(1..).all(|(field, number)| field.number == number));
        let lean = FIELDS.iter().filter(|field| field.is_lean).count();
        assert!((30..=45).contains(&lean), "{lean}");
    }
}
