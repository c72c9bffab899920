//! Which SQL a server understands.

use core::fmt;

/// The SQL of a server, by its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// From 23.10 on.
    Current,
    /// From 18.16, which is Debian's, until then: no Protobuf, no TTL, no nanoseconds, no replication here.
    V18,
}

/// A version that there is no dialect for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ClickHouse {0} is older than 18.16, the oldest that is supported: upgrade it")]
pub struct UnknownVersion(pub(super) String);

/// The first release of each dialect.
const CURRENT_SINCE: (u32, u32) = (23, 10);
const V18_SINCE: (u32, u32) = (18, 16);

impl Dialect {
    /// The dialect of the server that says `version` of itself, as 25.8.1.5101.
    pub fn of(version: &str) -> Result<Self, UnknownVersion> {
        let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(major), Some(minor)) if (major, minor) >= CURRENT_SINCE => Ok(Self::Current),
            (Some(major), Some(minor)) if (major, minor) >= V18_SINCE => Ok(Self::V18),
            _ => Err(UnknownVersion(version.to_owned())),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Current => "current",
            Self::V18 => "18.16",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_the_dialect_of_their_time() {
        for (version, dialect) in [
            ("18.16.1", Dialect::V18),
            ("21.8.15.7", Dialect::V18),
            ("23.9.9.1", Dialect::V18),
            ("23.10.1", Dialect::Current),
            ("26.9.1.1", Dialect::Current),
        ] {
            assert_eq!(Dialect::of(version), Ok(dialect), "{version}");
        }
        for version in ["1.1.54394", "18.14.19", "", "nginx"] {
            assert!(Dialect::of(version).is_err(), "{version}");
        }
    }
}
