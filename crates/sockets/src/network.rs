//! Which addresses count as one client network.

use core::net::IpAddr;

use weirgate_units::Prefix;

/// How long a client network's prefix is, per family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientNetworks {
    v4_len: u8,
    v6_len: u8,
}

/// Prefix lengths that make no client networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientNetworksError {
    /// Shorter than any operator's allocation, or longer than an address.
    #[error("an IPv4 client network of /{0} makes no sense: choose 8 to 32 (24 is the default)")]
    V4(u8),
    /// Shorter than any operator's allocation, or so long that one host, with its privacy addresses, is many networks.
    #[error("an IPv6 client network of /{0} makes no sense: choose 19 to 64 (56 is the default)")]
    V6(u8),
}

impl ClientNetworks {
    /// Networks of `v4_len` bits (8 to 32) and `v6_len` bits (19, the shortest that registries hand out, to 64, one
    /// link: RFC 4291 2.5.1).
    ///
    /// # Errors
    /// [`ClientNetworksError`] names the length that is out of range.
    pub const fn new(v4_len: u8, v6_len: u8) -> Result<Self, ClientNetworksError> {
        if v4_len < 8 || v4_len > 32 {
            return Err(ClientNetworksError::V4(v4_len));
        }
        if v6_len < 19 || v6_len > 64 {
            return Err(ClientNetworksError::V6(v6_len));
        }
        Ok(Self { v4_len, v6_len })
    }

    /// The network that `client` lies in. An IPv4 address mapped into IPv6 lies in an IPv4 network.
    pub fn of(self, client: IpAddr) -> Prefix {
        let client = client.to_canonical();
        Prefix::of(client, if client.is_ipv4() { self.v4_len } else { self.v6_len })
    }
}

impl Default for ClientNetworks {
    /// /24, the smallest IPv4 network that is routed on the Internet, and /56, what providers give one site (RFC 6177).
    fn default() -> Self {
        Self { v4_len: 24, v6_len: 56 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(networks: ClientNetworks, client: &str) -> String {
        networks.of(client.parse().unwrap()).to_string()
    }

    #[test]
    fn the_family_of_the_client_decides_the_length() {
        let default = ClientNetworks::default();
        assert_eq!(of(default, "192.0.2.77"), "192.0.2.0/24");
        assert_eq!(of(default, "::ffff:192.0.2.77"), "192.0.2.0/24");
        assert_eq!(of(default, "2001:db8:1:2ff::1"), "2001:db8:1:200::/56");
        let wide = ClientNetworks::new(20, 48).unwrap();
        assert_eq!(of(wide, "192.0.31.77"), "192.0.16.0/20");
        assert_eq!(of(wide, "2001:db8:1:2ff::1"), "2001:db8:1::/48");
    }

    #[test]
    fn lengths_out_of_range_are_named() {
        assert_eq!(ClientNetworks::new(33, 56), Err(ClientNetworksError::V4(33)));
        assert_eq!(ClientNetworks::new(24, 65), Err(ClientNetworksError::V6(65)));
        assert_eq!(ClientNetworks::new(0, 0), Err(ClientNetworksError::V4(0)));
    }
}
