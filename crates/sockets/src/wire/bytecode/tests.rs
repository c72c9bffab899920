//! The compiled filter against what it means, run by a model of the kernel's audit and interpreter
//! (`inet_diag_bc_audit`, `valid_cc` and `inet_diag_bc_run`, net/ipv4/inet_diag.c of Linux 6.18).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Socket {
    family: u8,
    sport: u16,
    dport: u16,
    /// As the kernel has it: four bytes of IPv4, or sixteen.
    remote: Vec<u8>,
}

impl Socket {
    fn address(&self) -> IpAddr {
        match <[u8; 4]>::try_from(&self.remote[..]) {
            Ok(v4) => Ipv4Addr::from(v4).into(),
            Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&self.remote[..]).unwrap())).to_canonical(),
        }
    }
}

/// What the filter says, in plain words.
fn means(wanted: &Wanted<'_>, socket: &Socket) -> bool {
    let remote = socket.address();
    (wanted.local_ports.is_empty() || wanted.local_ports.contains(&socket.sport))
        && (socket.dport == 0
            || (wanted.remote.is_empty() || wanted.remote.iter().any(|p| p.contains(remote)))
                && !wanted.remote_not.iter().any(|p| p.contains(remote)))
}

fn word(program: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([program[at], program[at + 1]])
}

/// `inet_diag_bc_audit`: the kernel refuses a program for which this is false, and so the whole request.
fn audit(program: &[u8]) -> bool {
    let valid_cc = |target_left: usize| {
        let (mut at, mut left) = (0, program.len() as isize);
        while left >= 0 {
            if target_left as isize > left {
                return false;
            }
            if target_left as isize == left {
                return true;
            }
            let yes = program[at + 1] as usize;
            if yes < 4 || !yes.is_multiple_of(4) {
                return false;
            }
            (at, left) = (at + yes, left - yes as isize);
        }
        false
    };
    let (mut at, mut left) = (0, program.len());
    while left > 0 {
        if left < 4 {
            return false;
        }
        let (code, yes, no) = (program[at], program[at + 1] as usize, word(program, at + 2) as usize);
        let min_len = match code {
            op::S_COND | op::D_COND => {
                let address_len = match program[at + 4] {
                    0 => 0,
                    2 => 4,
                    10 => 16,
                    _ => return false,
                };
                if usize::from(program[at + 5]) > 8 * address_len {
                    return false;
                }
                12 + address_len
            }
            op::D_LE => 8,
            op::JMP => 4,
            _ => return false,
        };
        if left < min_len || no < min_len || no > left + 4 || !no.is_multiple_of(4) {
            return false;
        }
        if no < left && !valid_cc(left - no) {
            return false;
        }
        if yes < min_len || yes > left + 4 || !yes.is_multiple_of(4) {
            return false;
        }
        at += yes;
        left = match left.checked_sub(yes) {
            Some(left) => left,
            None => return false,
        };
    }
    true
}

/// `inet_diag_bc_run`.
fn run(program: &[u8], socket: &Socket) -> bool {
    let (mut at, mut left) = (0, program.len() as isize);
    while left > 0 {
        let holds = match program[at] {
            op::JMP => false,
            op::D_LE => socket.dport <= word(program, at + 6),
            code => {
                let port = i32::from_ne_bytes(program[at + 8..at + 12].try_into().unwrap());
                let own = if code == op::S_COND { socket.sport } else { socket.dport };
                let (family, prefix_len) = (program[at + 4], usize::from(program[at + 5]));
                let bits = |address: &[u8]| {
                    let bit = |b: &[u8], n: usize| b[n / 8] >> (7 - n % 8) & 1;
                    (0..prefix_len).all(|n| bit(address, n) == bit(&program[at + 12..], n))
                };
                let host = if family != 0 && family != socket.family {
                    let mapped = socket.family == 10 && socket.remote[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255];
                    family == 2 && mapped && bits(&socket.remote[12..])
                } else {
                    prefix_len == 0 || bits(&socket.remote)
                };
                (port == -1 || port == i32::from(own)) && host
            }
        };
        let step = if holds { program[at + 1] as usize } else { word(program, at + 2) as usize };
        (at, left) = (at + step, left - step as isize);
    }
    left == 0
}

fn prefixes() -> impl Strategy<Value = Prefix> {
    // Few bits differ, so that prefixes often hold the addresses.
    prop_oneof![
        (0u32..4, 0u8..=32).prop_map(|(a, len)| Prefix::of(Ipv4Addr::from_bits(0xc000_0200 | a).into(), len)),
        (0u128..4, 0u8..=128).prop_map(|(a, len)| Prefix::of(Ipv6Addr::from_bits(0x2001_0db8 << 96 | a).into(), len)),
        (0u8..=128).prop_map(|len| Prefix::of(Ipv6Addr::UNSPECIFIED.into(), len)),
    ]
}

fn sockets() -> impl Strategy<Value = Socket> {
    let v4 = (0u32..4).prop_map(|a| (2, (0xc000_0200 | a).to_be_bytes().to_vec()));
    let mapped = (0u32..4).prop_map(|a| (10, Ipv4Addr::from_bits(0xc000_0200 | a).to_ipv6_mapped().octets().to_vec()));
    let v6 = (0u128..4).prop_map(|a| (10, ((0x2001_0db8 << 96) | a).to_be_bytes().to_vec()));
    let low = (0u128..4).prop_map(|a| (10, a.to_be_bytes().to_vec()));
    (prop_oneof![v4, mapped, v6, low], 1u16..5, 0u16..3).prop_map(|((family, remote), sport, dport)| Socket {
        family,
        sport,
        dport,
        remote,
    })
}

proptest! {
    #[test]
    fn the_kernel_takes_it_and_it_says_what_was_meant(
        local_ports in vec(1u16..5, 0..4),
        remote in vec(prefixes(), 0..4),
        remote_not in vec(prefixes(), 0..4),
        sockets in vec(sockets(), 1..20),
    ) {
        let wanted = Wanted { local_ports: &local_ports, remote: &remote, remote_not: &remote_not };
        let program = Bytecode::compile(&wanted).unwrap();
        prop_assert!(audit(program.as_bytes()), "refused: {:?}", program);
        for socket in sockets {
            prop_assert_eq!(run(program.as_bytes(), &socket), means(&wanted, &socket), "{:?} of {:?}", wanted, socket);
        }
    }
}

#[test]
fn full_lists_fit_and_longer_ones_are_named() {
    let prefix: Prefix = "2001:db8::/56".parse().unwrap();
    let (ports, networks) = ([1; ENTRIES_MAX], [prefix; ENTRIES_MAX]);
    let wanted = Wanted { local_ports: &ports, remote: &networks, remote_not: &networks };
    let program = Bytecode::compile(&wanted).unwrap();
    assert!(program.as_bytes().len() <= LEN_MAX && audit(program.as_bytes()));

    let spanning: [Prefix; ENTRIES_MAX] = ["::/0".parse().unwrap(); ENTRIES_MAX];
    let program = Bytecode::compile(&Wanted { remote: &spanning, remote_not: &spanning, ..wanted }).unwrap();
    assert!(program.as_bytes().len() <= LEN_MAX && audit(program.as_bytes()));

    let many = [1; ENTRIES_MAX + 1];
    assert_eq!(
        Bytecode::compile(&Wanted { local_ports: &many, ..Wanted::default() }),
        Err(TooManyError { list: "local ports", len: 65 })
    );
}

#[test]
fn nothing_in_particular_is_no_program() {
    assert!(Bytecode::compile(&Wanted::default()).unwrap().as_bytes().is_empty());
}
