//! Holds `Sample` equal to `struct wg_sample` of `bpf/sample.h`, byte for byte, by asking the C compiler.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};

use weirgate_sockets::sample::{Arm, Field, Kind, Sample, flag};

/// Name, offset and size of the fields named, in order.
macro_rules! layout {
    ($($field:ident)*) => {
        [$((stringify!($field), offset_of!(Sample, $field), size_of_field(|s: &Sample| &s.$field))),*]
    };
}

fn size_of_field<T>(_: impl Fn(&Sample) -> &T) -> usize {
    size_of::<T>()
}

#[test]
fn rust_and_c_agree_on_every_byte() {
    let fields = layout!(
        len kind state ca_state flags arm family local_port remote_port mark local remote cookie cgroup_id time_ns given
        netns policy_version cc bytes_sent bytes_acked bytes_retrans bytes_received delivery_rate pacing_rate busy_us
        rwnd_limited_us sndbuf_limited_us bbr_bw bbr_min_rtt_us bbr_pacing_gain bbr_cwnd_gain rtt_us rttvar_us
        min_rtt_us rto_us snd_mss snd_cwnd snd_ssthresh segs_out segs_in data_segs_out data_segs_in total_retrans lost
        unacked retrans_out reordering reord_seen dsack_dups delivered delivered_ce notsent_bytes rmem_alloc rcvbuf
        wmem_queued sndbuf backlog_drops
    );
    // The list above leaves no byte of the struct out, so a field added on either side shows.
    let mut end = 0;
    for (name, offset, size) in fields {
        assert_eq!(offset, end, "a gap before {name}");
        end = offset + size;
    }
    assert_eq!(end, size_of::<Sample>());

    let constants = [
        ("WG_POLL", Kind::Poll as u64),
        ("WG_CLOSE", Kind::Close as u64),
        ("WG_F_APP_LIMITED", flag::APP_LIMITED.into()),
        ("WG_F_TIMESTAMPS", flag::TIMESTAMPS.into()),
        ("WG_F_SACK", flag::SACK.into()),
        ("WG_F_ECN", flag::ECN.into()),
        ("WG_F_ECN_SEEN", flag::ECN_SEEN.into()),
        ("WG_F_ACCEPTED", flag::ACCEPTED.into()),
        ("WG_F_CONNECTED", flag::CONNECTED.into()),
        ("WG_F_SWITCHED", flag::SWITCHED.into()),
        ("WG_ARM_NONE", Arm::None as u64),
        ("WG_ARM_TREATED", Arm::Treated as u64),
        ("WG_ARM_HOLDOUT", Arm::Holdout as u64),
        ("WG_BYTES_SENT", Field::BytesSent as u64),
        ("WG_BYTES_ACKED", Field::BytesAcked as u64),
        ("WG_BYTES_RETRANS", Field::BytesRetrans as u64),
        ("WG_BYTES_RECEIVED", Field::BytesReceived as u64),
        ("WG_DELIVERY_RATE", Field::DeliveryRate as u64),
        ("WG_PACING_RATE", Field::PacingRate as u64),
        ("WG_BUSY_US", Field::BusyUs as u64),
        ("WG_RWND_LIMITED_US", Field::RwndLimitedUs as u64),
        ("WG_SNDBUF_LIMITED_US", Field::SndbufLimitedUs as u64),
        ("WG_BBR", Field::Bbr as u64),
        ("WG_MIN_RTT_US", Field::MinRttUs as u64),
        ("WG_SEGS_OUT", Field::SegsOut as u64),
        ("WG_SEGS_IN", Field::SegsIn as u64),
        ("WG_DATA_SEGS_OUT", Field::DataSegsOut as u64),
        ("WG_DATA_SEGS_IN", Field::DataSegsIn as u64),
        ("WG_REORD_SEEN", Field::ReordSeen as u64),
        ("WG_DSACK_DUPS", Field::DsackDups as u64),
        ("WG_DELIVERED", Field::Delivered as u64),
        ("WG_DELIVERED_CE", Field::DeliveredCe as u64),
        ("WG_NOTSENT_BYTES", Field::NotsentBytes as u64),
        ("WG_MEMORY", Field::Memory as u64),
        ("WG_MARK", Field::Mark as u64),
        ("WG_CGROUP_ID", Field::CgroupId as u64),
        ("WG_NETNS", Field::Netns as u64),
        ("WG_CC", Field::Cc as u64),
        ("WG_TCP_INFO", Field::TcpInfo as u64),
    ];

    let Some(c) = ask_the_compiler(&fields.map(|(name, _, _)| name), &constants.map(|(name, _)| name)) else {
        return;
    };
    assert_eq!(c["sizeof"], (size_of::<Sample>() as u64, 0));
    for (name, offset, size) in fields {
        assert_eq!(c[name], (offset as u64, size as u64), "struct wg_sample.{name}: offset and size in C");
    }
    for (name, value) in constants {
        assert_eq!(c[name], (value, 0), "{name} in C");
    }
}

/// Compiles a program that prints what it is asked, and runs it. `None`, with a line that says so, without a compiler.
#[allow(clippy::disallowed_methods, reason = "it asks where the sources are")]
fn ask_the_compiler(fields: &[&str], constants: &[&str]) -> Option<BTreeMap<String, (u64, u64)>> {
    let mut source = String::from(
        "#include <linux/types.h>\n#include <stddef.h>\n#include <stdio.h>\n#include \"sample.h\"\n\
         static struct wg_sample s;\nint main(void) {\nprintf(\"sizeof %zu 0\\n\", sizeof s);\n",
    );
    for field in fields {
        writeln!(source, "printf(\"{field} %zu %zu\\n\", offsetof(struct wg_sample, {field}), sizeof s.{field});")
            .unwrap();
    }
    for constant in constants {
        writeln!(source, "printf(\"{constant} %d 0\\n\", (int){constant});").unwrap();
    }
    source.push_str("return 0;\n}\n");

    let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/wg_sample_layout");
    let program = format!("{program}-{}", std::process::id());
    // Asked when it runs: a shared target directory may hold the test as another checkout built it.
    let include = format!("-I{}/../../bpf", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    let spawned = Command::new("cc")
        .args(["-x", "c", "-", &include, "-o", &program])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut compiler) = spawned else {
        println!("SKIPPED: no C compiler (`cc`) on this machine");
        return None;
    };
    compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let compiled = compiler.wait_with_output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let printed = Command::new(&program).output().unwrap().stdout;
    std::fs::remove_file(&program).unwrap();
    let lines = String::from_utf8(printed).unwrap();
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        Some((name, (words.next()?.parse().ok()?, words.next()?.parse().ok()?)))
    };
    Some(lines.lines().map(|line| parse(line).expect("three words")).collect())
}
