//! Geo databases made here, byte by byte, after the MaxMind DB file format specification 2.0.
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use weirgate_store::{Geo, GeoError, Place};
use weirgate_units::Prefix;

/// A value of the format's data section: only what the tests need.
enum Value {
    Text(&'static str),
    U16(u16),
    U32(u32),
    U64(u64),
    Map(Vec<(&'static str, Value)>),
    List(Vec<Value>),
}
use Value::{List, Map, Text, U16, U32, U64};

fn encode(value: &Value, out: &mut Vec<u8>) {
    // The type is the three upper bits of the first byte, or 0 there and 7 less in the next; sizes here are below 29.
    match value {
        Text(text) => {
            out.push(2 << 5 | u8::try_from(text.len()).unwrap());
            out.extend_from_slice(text.as_bytes());
        }
        U16(n) => {
            out.push(5 << 5 | 2);
            out.extend_from_slice(&n.to_be_bytes());
        }
        U64(n) => {
            out.extend_from_slice(&[8, 9 - 7]);
            out.extend_from_slice(&n.to_be_bytes());
        }
        U32(n) => {
            out.push(6 << 5 | 4);
            out.extend_from_slice(&n.to_be_bytes());
        }
        Map(pairs) => {
            out.push(7 << 5 | u8::try_from(pairs.len()).unwrap());
            for (key, value) in pairs {
                encode(&Text(key), out);
                encode(value, out);
            }
        }
        List(values) => {
            out.push(u8::try_from(values.len()).unwrap());
            out.push(11 - 7);
            values.iter().for_each(|v| encode(v, out));
        }
    }
}

/// A database of `networks`, IPv4 in its place in IPv6 (`::a.b.c.d`), which must not overlap.
fn database(networks: &[(&str, Value)]) -> Vec<u8> {
    #[derive(Clone, Copy)]
    enum End {
        Nothing,
        Node(usize),
        Data(usize),
    }
    let mut nodes = vec![[End::Nothing; 2]];
    let mut data = Vec::new();
    for (network, value) in networks {
        let network: Prefix = network.parse().unwrap();
        let (bits, len) = match network.address() {
            std::net::IpAddr::V4(a) => (u128::from(a.to_bits()), 96 + u32::from(network.len())),
            std::net::IpAddr::V6(a) => (a.to_bits(), u32::from(network.len())),
        };
        let at = data.len();
        encode(value, &mut data);
        let mut node = 0;
        for depth in 0..len {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == len {
                nodes[node][side] = End::Data(at);
            } else if let End::Node(next) = nodes[node][side] {
                node = next;
            } else {
                nodes.push([End::Nothing; 2]);
                nodes[node][side] = End::Node(nodes.len() - 1);
                node = nodes.len() - 1;
            }
        }
    }
    let count = nodes.len();
    let mut out = Vec::new();
    for node in &nodes {
        for end in node {
            let record = match end {
                End::Nothing => count,
                End::Node(n) => *n,
                End::Data(at) => count + 16 + at,
            };
            out.extend_from_slice(&u32::try_from(record).unwrap().to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&data);
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let metadata = Map(vec![
        ("binary_format_major_version", U16(2)),
        ("binary_format_minor_version", U16(0)),
        ("build_epoch", U64(1_795_291_200)),
        ("database_type", Text("weirgate-test")),
        ("description", Map(vec![("en", Text("test"))])),
        ("ip_version", U16(6)),
        ("languages", List(vec![Text("en")])),
        ("node_count", U32(u32::try_from(count).unwrap())),
        ("record_size", U16(32)),
    ]);
    encode(&metadata, &mut out);
    out
}

fn countries() -> Vec<u8> {
    database(&[
        ("192.0.2.0/24", Map(vec![("country", Map(vec![("iso_code", Text("DE"))]))])),
        ("198.51.100.0/24", Map(vec![("registered_country", Map(vec![("iso_code", Text("FR"))]))])),
        ("203.0.113.0/24", Map(vec![("country", Text("JP")), ("asn", Text("AS64503"))])),
        ("2001:db8::/32", Map(vec![("country", Map(vec![("iso_code", Text("nowhere"))]))])),
    ])
}

fn systems(asn: u32) -> Vec<u8> {
    database(&[
        ("192.0.2.0/24", Map(vec![("autonomous_system_number", U32(asn))])),
        ("2001:db8::/32", Map(vec![("autonomous_system_number", U32(64_502))])),
    ])
}

fn network(text: &str) -> Prefix {
    Prefix::client_network(text.parse().unwrap())
}

#[test]
fn files_complete_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = ["country.mmdb", "asn.mmdb"].iter().map(|n| dir.path().join(n)).collect();
    std::fs::write(&paths[0], countries()).unwrap();
    std::fs::write(&paths[1], systems(64_501)).unwrap();
    let mut geo = Geo::open(&paths).unwrap();
    let expected: BTreeMap<&str, Place> = [
        ("192.0.2.77", Place { asn: 64_501, country: *b"DE" }),
        ("198.51.100.1", Place { asn: 0, country: *b"FR" }),
        ("203.0.113.1", Place { asn: 64_503, country: *b"JP" }),
        ("2001:db8:1::1", Place { asn: 64_502, country: [0; 2] }),
        ("10.0.0.1", Place::default()),
        ("2001:dead::1", Place::default()),
    ]
    .into();
    for _ in 0..2 {
        for (address, place) in &expected {
            assert_eq!(geo.place(network(address)), *place, "{address}");
        }
    }
}

#[test]
fn a_changed_file_is_read_again_and_a_ruined_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("asn.mmdb");
    std::fs::write(&path, systems(1)).unwrap();
    let mut geo = Geo::open(std::slice::from_ref(&path)).unwrap();
    let client = network("192.0.2.1");
    assert_eq!((geo.place(client).asn, geo.handle_tick().unwrap()), (1, 0));

    // Another size, since two writes within the file system's clock tick may leave the same time.
    let mut other = systems(2);
    other.extend_from_slice(&[0; 8]);
    std::fs::write(&path, &other).unwrap();
    assert_eq!((geo.handle_tick().unwrap(), geo.place(client).asn), (1, 2));

    std::fs::write(&path, b"<html>You have reached your download limit").unwrap();
    let error = geo.handle_tick().unwrap_err();
    assert!(matches!(error, GeoError::Format { .. }) && error.to_string().contains("asn.mmdb"), "{error}");
    assert_eq!(geo.place(client).asn, 2);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(geo.handle_tick(), Err(GeoError::Read { .. })));
}

#[test]
fn what_is_no_database_is_refused_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.mmdb");
    assert!(matches!(Geo::open(std::slice::from_ref(&path)), Err(GeoError::Read { .. })));
    let whole = countries();
    // Every seventh byte meets every part of the file; all of them take a minute.
    for n in (0..whole.len()).step_by(7) {
        std::fs::write(&path, &whole[..n]).unwrap();
        // Cut in its metadata it is refused; a flipped byte may leave a file that answers something.
        assert!(Geo::open(std::slice::from_ref(&path)).is_err(), "cut at {n}");
        let mut flipped = whole.clone();
        flipped[n] ^= 0xff;
        std::fs::write(&path, &flipped).unwrap();
        if let Ok(mut geo) = Geo::open(std::slice::from_ref(&path)) {
            for address in ["192.0.2.1", "203.0.113.9", "2001:db8::1", "10.1.2.3"] {
                geo.place(network(address));
            }
        }
    }
}
