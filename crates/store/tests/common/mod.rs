//! Records to write, and a clock that tests turn by hand.
#![allow(dead_code, reason = "each test file uses its own part of the helpers")]

use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{CcName, Kind, Sample, flag, mapped, state};
use weirgate_units::{Duration, Prefix, UnixTime};

/// 2026-11-21T20:00:00Z.
pub(crate) const HOUR_20: u64 = 1_795_291_200;

pub(crate) fn at(seconds_after_20: u64) -> UnixTime {
    UnixTime::from_nanos((HOUR_20 + seconds_after_20) * 1_000_000_000)
}

pub(crate) fn origin() -> Origin {
    Origin {
        host: "edge-7".to_owned(),
        pop: "fra".to_owned(),
        boot_id: "5ad5f0a8-9d2f-4c6e-8f3b-2f1d1c0e9a77".to_owned(),
    }
}

/// A sample in which every field differs from every other, and with `n`; all fields given.
pub(crate) fn sample(n: u64) -> Sample {
    let w = n as u32;
    Sample {
        len: size_of::<Sample>() as u16,
        kind: if n.is_multiple_of(5) { Kind::Close as u8 } else { Kind::Poll as u8 },
        state: if n.is_multiple_of(5) { state::LAST_ACK } else { state::ESTABLISHED },
        ca_state: (n % 5) as u8,
        flags: flag::TIMESTAMPS
            | flag::SACK
            | if n.is_multiple_of(3) { flag::APP_LIMITED | flag::ECN } else { flag::SWITCHED },
        arm: (n % 3) as u8,
        family: if n.is_multiple_of(4) { 6 } else { 4 },
        local_port: 443,
        remote_port: 1_024 + (n % 60_000) as u16,
        mark: 7_000 + w,
        local: mapped(if n.is_multiple_of(4) {
            "2001:db8::1".parse().unwrap()
        } else {
            "203.0.113.9".parse().unwrap()
        }),
        remote: remote(n),
        cookie: 1_000_000 + n,
        cgroup_id: 77,
        time_ns: 5_000_000_000 + n,
        given: (1 << 26) - 1,
        netns: 4_026_531_840,
        policy_version: 3,
        cc: CcName::new(["cubic", "bbr", "reno"][(n % 3) as usize]).unwrap(),
        bytes_sent: 100_001 + n,
        bytes_acked: 100_002 + n,
        bytes_retrans: 103 + n,
        bytes_received: 104 + n,
        delivery_rate: 1_000_005 + n,
        pacing_rate: 1_000_006 + n,
        busy_us: 107 + n,
        rwnd_limited_us: 108 + n,
        sndbuf_limited_us: 109 + n,
        bbr_bw: 110 + n,
        bbr_min_rtt_us: 111 + w,
        bbr_pacing_gain: 739,
        bbr_cwnd_gain: 512,
        rtt_us: 114 + w,
        rttvar_us: 115 + w,
        min_rtt_us: 116 + w,
        rto_us: 117 + w,
        snd_mss: 1_448,
        snd_cwnd: 119 + w,
        snd_ssthresh: 120 + w,
        segs_out: 121 + w,
        segs_in: 122 + w,
        data_segs_out: 123 + w,
        data_segs_in: 124 + w,
        total_retrans: 125 + w,
        lost: 126 + w,
        unacked: 127 + w,
        retrans_out: 128 + w,
        reordering: 129 + w,
        reord_seen: 130 + w,
        dsack_dups: 131 + w,
        delivered: 132 + w,
        delivered_ce: 133 + w,
        notsent_bytes: 134 + w,
        rmem_alloc: 135 + w,
        rcvbuf: 136 + w,
        wmem_queued: 137 + w,
        sndbuf: 138 + w,
        backlog_drops: 139 + w,
    }
}

fn remote(n: u64) -> [u8; 16] {
    if n.is_multiple_of(4) {
        let mut a: [u8; 16] = mapped("2001:db8:0:5600::".parse().unwrap());
        a[15] = n as u8;
        a
    } else {
        mapped([192, 0, 2, n as u8].into())
    }
}

/// The record of `sample` at `time`, as the daemon would make it.
pub(crate) fn record(sample: &Sample, n: u64, time: UnixTime) -> Record<'_> {
    Record {
        sample,
        time,
        sequence: n as u32,
        direction: if n.is_multiple_of(7) { Direction::Unknown } else { Direction::Accepted },
        listener_port: 443,
        delivery_rate_max: if n.is_multiple_of(2) { 2_000_000 + n } else { 0 },
        network: Prefix::client_network(sample.remote().ip()),
        asn: if n.is_multiple_of(2) { 64_500 } else { 0 },
        country: if n.is_multiple_of(2) { *b"DE" } else { [0, 0] },
    }
}

/// Appends `count` records, numbered from `from`, all at `time`.
pub(crate) fn append(writer: &mut weirgate_store::Writer, from: u64, count: u64, time: UnixTime) {
    for n in from..from + count {
        let sample = sample(n);
        writer.append(&record(&sample, n, time + Duration::from_nanos(n - from)));
    }
}

/// The finished files below `dir`, sorted by name.
pub(crate) fn files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for hour in std::fs::read_dir(dir).unwrap() {
        let hour = hour.unwrap().path();
        if hour.is_dir() {
            found.extend(std::fs::read_dir(hour).unwrap().map(|f| f.unwrap().path()));
        }
    }
    found.sort();
    found
}

/// One number out of a query.
pub(crate) fn number(dir: &std::path::Path, sql: &str) -> u64 {
    let table = weirgate_store::query(dir, sql).unwrap();
    let mut json = Vec::new();
    table.write_json_lines(&mut json).unwrap();
    let text = String::from_utf8(json).unwrap();
    let digits: String = text.split(':').nth(1).unwrap_or("0").chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{sql}: {text}"))
}
