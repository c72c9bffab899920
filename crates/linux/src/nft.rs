//! nftables: batches by the program `nft`, which takes them as a whole or not at all, and counters by netlink, which are read often. Read
//! first: nft(8), libnftables-json(5), `include/uapi/linux/netfilter/nf_tables.h`.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use rustix::net::netlink::NETFILTER;
use weirgate_sockets::wire::frame::Attributes;

use crate::netlink::{Netlink, attribute};

/// `NFNL_SUBSYS_NFTABLES << 8` with `NFT_MSG_GETTABLE`, `..._NEWOBJ` and `..._GETOBJ`.
const GET_TABLE: u16 = 0xa01;
const NEW_OBJECT: u16 = 0xa12;
const GET_OBJECT: u16 = 0xa13;

/// `NFPROTO_INET`.
const INET: u8 = 1;

/// Bytes of `struct nfgenmsg`.
const HEADER_LEN: usize = 4;

/// Why a batch did not take effect; nothing of it did.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The program is not there.
    #[error("cannot run `nft`: install nftables (Debian: apt install nftables)")]
    Missing,
    /// It cannot be run.
    #[error("cannot run `nft`: {0}")]
    Run(#[from] io::Error),
    /// It said no.
    #[error("`nft` refused: {0}")]
    Refused(String),
}

/// Has `nft` take a batch in JSON, in the calling thread's network namespace.
///
/// # Errors
/// What it refused, with its words.
pub fn run(batch: &str) -> Result<(), NftError> {
    let mut command = Command::new("nft");
    command.args(["-j", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NftError::Missing,
        _ => NftError::Run(error),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A broken pipe is `nft` that stopped early; its own words say why.
        let _ = stdin.write_all(batch.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(NftError::Refused(words(&String::from_utf8_lossy(&output.stderr))))
}

/// The lines that say what is wrong: those beside them repeat the batch, which may be long.
fn words(said: &str) -> String {
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("rror")).take(3).collect();
    if errors.is_empty() { said.chars().take(300).collect() } else { errors.join("; ") }
}

/// Which `nft` there is, as it says itself.
///
/// # Errors
/// Where there is none.
pub fn version() -> Result<String, NftError> {
    let output = Command::new("nft").arg("--version").output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NftError::Missing,
        _ => NftError::Run(error),
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Reads what is in tables of the family `inet`, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Tables(Netlink);

impl Tables {
    /// Opens it.
    ///
    /// # Errors
    /// Where there is no such netlink protocol.
    pub fn open() -> io::Result<Self> {
        Netlink::open(NETFILTER).map(Self)
    }

    /// Whether there is a table of this name.
    ///
    /// # Errors
    /// Where the kernel refuses to say.
    pub fn has(&mut self, table: &str) -> io::Result<bool> {
        match self.0.ask(GET_TABLE, &named(table)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            asked => asked.map(|()| true),
        }
    }

    /// Hands the name, packets and bytes of every named counter of a table to `each`.
    ///
    /// # Errors
    /// Where the kernel refuses to say.
    pub fn counters(&mut self, table: &str, each: &mut dyn FnMut(&str, u64, u64)) -> io::Result<()> {
        let dumped = self.0.dump(GET_OBJECT, &named(table), &mut |kind, message| {
            // Others' objects may come as well: before Linux 4.16 a dump was of all tables.
            if let Some((name, packets, bytes)) = (kind == NEW_OBJECT).then(|| counter(message, table)).flatten() {
                each(name, packets, bytes);
            }
        });
        match dumped {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            dumped => dumped,
        }
    }
}

/// `NFTA_TABLE_NAME` and `NFTA_OBJ_TABLE` are 1.
fn named(table: &str) -> Vec<u8> {
    let mut payload = vec![INET, 0, 0, 0];
    attribute(&mut payload, 1, format!("{table}\0").as_bytes());
    payload
}

fn counter<'a>(message: &'a [u8], table: &str) -> Option<(&'a str, u64, u64)> {
    let text = |value: &'a [u8]| std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok();
    let number = |value: &[u8]| Some(u64::from_be_bytes(*value.first_chunk()?));
    let (mut name, mut counts, mut is_counter, mut is_its) = (None, [0; 2], false, false);
    for attribute in Attributes::new(message.get(HEADER_LEN..)?) {
        // NFTA_OBJ_TABLE, _NAME, _TYPE (NFT_OBJECT_COUNTER is 1), and _DATA with NFTA_COUNTER_BYTES and _PACKETS.
        match attribute.ok()? {
            (1, value) => is_its = text(value) == Some(table),
            (2, value) => name = text(value),
            (3, value) => is_counter = u32::from_be_bytes(*value.first_chunk()?) == 1,
            (4, value) => {
                for (kind, value) in Attributes::new(value).map_while(Result::ok) {
                    if let 1 | 2 = kind {
                        counts[usize::from(kind) - 1] = number(value)?;
                    }
                }
            }
            _ => {}
        }
    }
    (is_counter && is_its).then_some((name?, counts[1], counts[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nft_says_is_cut_to_its_errors() {
        let said = "internal:0:0-0: Error: Could not process rule: No such file or directory\n\ninternal:0:0-0: Error: x\n{\"nft\"";
        let errors =
            "internal:0:0-0: Error: Could not process rule: No such file or directory; internal:0:0-0: Error: x";
        assert_eq!(words(said), errors);
        assert_eq!(words(&"y".repeat(1_000)).len(), 300);
    }

    #[test]
    fn a_counter_is_read_and_others_are_not() {
        let message = |kind: u32| {
            let (mut bytes, mut data) = (vec![INET, 0, 0, 0], Vec::new());
            attribute(&mut bytes, 1, b"t\0");
            attribute(&mut bytes, 2, b"to_1\0");
            attribute(&mut bytes, 3, &kind.to_be_bytes());
            attribute(&mut data, 1, &700_u64.to_be_bytes());
            attribute(&mut data, 2, &7_u64.to_be_bytes());
            crate::netlink::nested(&mut bytes, 4, &data);
            bytes
        };
        let bytes = message(1);
        assert_eq!(counter(&bytes, "t"), Some(("to_1", 7, 700)));
        assert_eq!((counter(&bytes, "other"), counter(&message(2), "t")), (None, None));
        for len in 0..bytes.len() {
            assert!(counter(&bytes[..len], "t").is_none_or(|(name, ..)| name == "to_1"));
        }
    }
}
