//! Values that are words, numbers or addresses.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use weirgate_units::BitRate;

use super::super::typed;
use super::{Gateway, Target};

/// A gateway, `"auto"` or `"none"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypedGateway(pub(super) Gateway);

impl FromStr for TypedGateway {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if let Ok(address) = s.parse::<IpAddr>() {
            return Ok(Self(Gateway::At(address)));
        }
        let words = [("auto", Gateway::Auto), ("none", Gateway::None)];
        typed::word(s, &words).map(Self).map_err(|error| format!("{error}; or an address, as \"192.0.2.1\""))
    }
}

/// `"auto"`, a rate or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypedWeight {
    Auto,
    Rate(BitRate),
    Number(u64),
}

impl TypedWeight {
    pub(super) const fn value(self) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Rate(rate) => Some(rate.as_bits_per_sec()),
            Self::Number(number) => Some(number),
        }
    }
}

impl FromStr for TypedWeight {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if s == "auto" {
            return Ok(Self::Auto);
        }
        if let Ok(number) = s.parse() {
            return Ok(Self::Number(number));
        }
        let wrong = |_| format!("`{s}` is no weight: write \"auto\", a rate as \"50 Mbit/s\", or a number as \"3\"");
        s.parse().map(Self::Rate).map_err(wrong)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if let Ok(address) = s.parse::<IpAddr>() {
            return Ok(Self { address, port: None });
        }
        match s.parse::<SocketAddr>() {
            Ok(address) if address.port() > 0 => Ok(Self { address: address.ip(), port: Some(address.port()) }),
            _ => Err(format!(
                "`{s}` is no target: write an address, which is asked by ICMP echo, or with a TCP port, as \
                 \"192.0.2.1:443\" or \"[2001:db8::1]:443\""
            )),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => write!(f, "{}", self.address),
            Some(port) => write!(f, "{}", SocketAddr::new(self.address, port)),
        }
    }
}

/// Bits of a mark, as `"0x10/0xff"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypedMark(pub(super) [u32; 2]);

impl FromStr for TypedMark {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let number = |text: &str| match text.trim().strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => text.trim().parse().ok(),
        };
        let (bits, mask) = s.split_once('/').unwrap_or((s, "0xffffffff"));
        match (number(bits), number(mask)) {
            (Some(bits), Some(mask)) if bits & !mask == 0 => Ok(Self([bits, mask])),
            (Some(_), Some(_)) => Err(format!("`{s}` never fits: bits are asked for that are not looked at")),
            _ => Err(format!("`{s}` is no mark: write \"0x10\", or \"0x10/0xff\" where only some bits are looked at")),
        }
    }
}

/// What becomes of a rule's connections while none of its uplinks works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Otherwise {
    Refuse,
    Any,
}

impl FromStr for Otherwise {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        typed::word(s, &[("refuse", Self::Refuse), ("any", Self::Any)])
    }
}
