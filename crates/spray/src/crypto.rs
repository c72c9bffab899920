//! Who the other side is, and what keeps everybody else out.
//!
//! Read first: the Noise protocol framework, revision 34, sections 7.5 (IK: whoever begins knows whom it calls) and 11.4 (nonces that the
//! transport carries). The handshake is `Noise_IK_25519_ChaChaPoly_BLAKE2s` by snow, with the protocol's version and the connection's name
//! for a prologue: a message is worth nothing under another name. It gives a key for each direction. A datagram is sealed by AES-256-GCM
//! with its path and packet number as nonce, so that any datagram can be sealed and opened before, after or beside any other one.
//!
//! Keys are used for 2^22 packets at most (RFC 9001, 6.6, allows 2^23); the next key is derived from the last one, and which of the two it
//! is is said by a bit of the header.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;

use crate::wire::{ConnectionId, HEADER_LEN, Header, TAG_LEN, VERSION};

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";

/// Packets that are sealed by one key.
const PACKETS_MAX: u64 = 1 << 22;

/// The longest message of a handshake: what it carries, its keys and tags.
const MESSAGE_MAX: usize = 512;

/// A side's secret key (X25519).
#[derive(Clone)]
pub struct Secret([u8; 32]);

/// A side's public key, by which others know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Public(pub [u8; 32]);

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// A message that was made for or by somebody else, or was changed on its way.
    #[error("the other side's key is not the one that was expected, or its message was changed on the way")]
    Refused,
    /// Its key is not known here.
    #[error("a key that is not known here: {0}")]
    Unknown(Public),
}

/// The keys of a connection: for what goes out, and for what comes in.
#[derive(Debug)]
pub struct Keys {
    /// For what goes out.
    pub sealer: Sealer,
    /// For what comes in.
    pub opener: Opener,
}

/// The side that begins.
pub struct Initiator(snow::HandshakeState);

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator")
    }
}

impl Secret {
    /// A new one, from the system's source of randomness.
    ///
    /// # Panics
    /// The system has none.
    pub fn generate() -> Self {
        let pair = builder(&[]).generate_keypair().expect("the system has randomness");
        Self(pair.private.try_into().expect("a secret key has 32 bytes"))
    }

    /// Of its 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes, to be kept where nobody else reads.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key that others know this side by.
    pub fn public(&self) -> Public {
        let mut dh = snow::resolvers::CryptoResolver::resolve_dh(
            &snow::resolvers::DefaultResolver,
            &snow::params::DHChoice::Curve25519,
        );
        let dh = dh.as_mut().expect("snow was built with X25519");
        dh.set(&self.0);
        Public(dh.pubkey().try_into().expect("a public key has 32 bytes"))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Display for Public {
    /// As 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Public {
    type Err = KeyError;

    /// Reads 64 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut key = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err(KeyError);
        }
        for (byte, at) in key.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| KeyError)?;
        }
        Ok(Self(key))
    }
}

/// A text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has 64 hexadecimal digits")]
pub struct KeyError;

impl Initiator {
    /// Begins the connection of this name with the side that `peer` names: what is to be sent to it, with `hello` for nobody else to read.
    ///
    /// # Errors
    /// [`HandshakeError::Refused`], where a key is none.
    pub fn begin(
        id: ConnectionId,
        secret: &Secret,
        peer: &Public,
        hello: &[u8],
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let prologue = prologue(id);
        let state =
            builder(&prologue).local_private_key(&secret.0).and_then(|builder| builder.remote_public_key(&peer.0));
        let mut state = state.and_then(snow::Builder::build_initiator).map_err(refused)?;
        let mut message = vec![0; MESSAGE_MAX];
        let len = state.write_message(hello, &mut message).map_err(refused)?;
        message.truncate(len);
        Ok((Self(state), message))
    }

    /// Takes the answer: what it says, and the keys.
    ///
    /// # Errors
    /// [`HandshakeError::Refused`]: it is not the other side's. The true one may still come.
    pub fn finish(&mut self, answer: &[u8]) -> Result<(Vec<u8>, Keys), HandshakeError> {
        let mut hello = vec![0; MESSAGE_MAX];
        let len = self.0.read_message(answer, &mut hello).map_err(refused)?;
        hello.truncate(len);
        let (to, from) = self.0.dangerously_get_raw_split();
        Ok((hello, Keys::of(to, from)))
    }
}

/// What the other side learns from a first message.
#[derive(Debug)]
pub struct Called {
    /// Who calls.
    pub peer: Public,
    /// The message.
    pub message: Vec<u8>,
    /// What it says.
    pub hello: Vec<u8>,
    /// The answer to it.
    pub answer: Vec<u8>,
    /// The keys.
    pub keys: Keys,
}

/// Answers the first message of a connection of this name, if `is_known` says so of its sender.
///
/// # Errors
/// [`HandshakeError`].
pub fn answer(
    id: ConnectionId,
    secret: &Secret,
    message: &[u8],
    hello: &[u8],
    is_known: impl FnOnce(&Public) -> bool,
) -> Result<Called, HandshakeError> {
    let prologue = prologue(id);
    let state = builder(&prologue).local_private_key(&secret.0).and_then(snow::Builder::build_responder);
    let mut state = state.map_err(refused)?;
    let mut theirs = vec![0; MESSAGE_MAX];
    let len = state.read_message(message, &mut theirs).map_err(refused)?;
    theirs.truncate(len);
    let peer = state.get_remote_static().and_then(|key| key.try_into().ok()).map(Public);
    let peer = peer.ok_or(HandshakeError::Refused)?;
    if !is_known(&peer) {
        return Err(HandshakeError::Unknown(peer));
    }
    let mut answer = vec![0; MESSAGE_MAX];
    let len = state.write_message(hello, &mut answer).map_err(refused)?;
    answer.truncate(len);
    let (from, to) = state.dangerously_get_raw_split();
    Ok(Called { peer, message: message.to_vec(), hello: theirs, answer, keys: Keys::of(to, from) })
}

fn builder(prologue: &[u8]) -> snow::Builder<'_> {
    // A constant that snow knows.
    let builder = snow::Builder::new(PATTERN.parse().unwrap_or_else(|_| unreachable!("{PATTERN} is a Noise pattern")));
    builder.prologue(prologue).unwrap_or_else(|_| unreachable!("it has none yet"))
}

/// What both sides have to agree on, beside their keys.
fn prologue(id: ConnectionId) -> Vec<u8> {
    [b"weirgate spray", &[VERSION][..], &id.0.to_be_bytes()].concat()
}

fn refused(_: snow::Error) -> HandshakeError {
    HandshakeError::Refused
}

impl Keys {
    fn of(to: [u8; 32], from: [u8; 32]) -> Self {
        let sealer = Sealer { key: key(&to), secret: to, phase: false, sealed: 0 };
        let next = successor(&from);
        let opener = Opener { current: key(&from), next: key(&next), secret: next, previous: None, phase: false };
        Self { sealer, opener }
    }
}

/// Seals what goes out.
#[derive(Debug)]
pub struct Sealer {
    key: LessSafeKey,
    secret: [u8; 32],
    phase: bool,
    /// By this key.
    sealed: u64,
}

impl Sealer {
    /// By which of two keys the next packet is sealed; changes when the present one has sealed enough, and the other side has seen it.
    pub fn phase(&mut self, is_seen: bool) -> bool {
        if self.sealed >= PACKETS_MAX && is_seen {
            self.secret = successor(&self.secret);
            self.key = key(&self.secret);
            self.phase = !self.phase;
            self.sealed = 0;
        }
        self.phase
    }

    /// Seals a datagram: what stands in `datagram` behind the header, which is there; the tag comes behind it.
    pub fn seal(&mut self, header: &Header, datagram: &mut Vec<u8>) {
        self.sealed += 1;
        self.seal_one(header, datagram);
    }

    /// The same, for threads that share these keys: whoever uses it sees to it that no number is sealed twice, and counts.
    pub fn seal_one(&self, header: &Header, datagram: &mut Vec<u8>) {
        let (head, body) = datagram.split_at_mut(HEADER_LEN);
        let tag = self.key.seal_in_place_separate_tag(nonce(header), Aad::from(&*head), body);
        // It fails for more than 64 GB only.
        if let Ok(tag) = tag {
            datagram.extend(tag.as_ref());
        }
    }
}

/// Opens what comes in.
#[derive(Debug)]
pub struct Opener {
    current: LessSafeKey,
    next: LessSafeKey,
    /// Of the next key.
    secret: [u8; 32],
    /// For what was sent before the change, and comes after it.
    previous: Option<LessSafeKey>,
    phase: bool,
}

impl Opener {
    /// Opens a datagram: its frames. `None`: it is not the other side's, or was changed on the way; the bytes are of no more use then.
    pub fn open<'a>(&mut self, header: &Header, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let is_next = header.phase != self.phase;
        let (head, body) = datagram.split_at_mut_checked(HEADER_LEN)?;
        let aad = || Aad::from(&*head);
        if !is_next {
            return self.current.open_in_place(nonce(header), aad(), body).ok().map(|body| &*body);
        }
        // A bit has no room for "the one before": who it was is known when it opens. Opening spoils the bytes.
        if let Some(previous) = &self.previous {
            let mut copy = body.to_vec();
            if previous.open_in_place(nonce(header), aad(), &mut copy).is_ok() {
                let len = body.len() - TAG_LEN;
                body[..len].copy_from_slice(&copy[..len]);
                return Some(&body[..len]);
            }
        }
        let body = self.next.open_in_place(nonce(header), aad(), body).ok()?;
        let secret = successor(&self.secret);
        let next = std::mem::replace(&mut self.next, key(&secret));
        self.previous = Some(std::mem::replace(&mut self.current, next));
        (self.secret, self.phase) = (secret, header.phase);
        Some(body)
    }
}

fn key(secret: &[u8; 32]) -> LessSafeKey {
    // A key of AES-256 has 32 bytes.
    let key = UnboundKey::new(&AES_256_GCM, secret).unwrap_or_else(|_| unreachable!("32 bytes are a key"));
    LessSafeKey::new(key)
}

/// The key after this one.
fn successor(secret: &[u8; 32]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"weirgate spray: the next key");
    tag.as_ref().try_into().unwrap_or_else(|_| unreachable!("SHA-256 has 32 bytes"))
}

/// Never the same for two packets of a key: each path numbers its own.
fn nonce(header: &Header) -> Nonce {
    let mut nonce = [0; 12];
    nonce[3] = header.path.0;
    nonce[4..].copy_from_slice(&header.number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ConnectionId, PathId};

    fn pair() -> (Keys, Keys) {
        let (mine, theirs) = (Secret::generate(), Secret::generate());
        let (mut begun, message) = Initiator::begin(ID, &mine, &theirs.public(), b"hello").unwrap();
        let called = answer(ID, &theirs, &message, b"hi", |peer| *peer == mine.public()).unwrap();
        assert_eq!((called.peer, &called.hello[..]), (mine.public(), &b"hello"[..]));
        let (hello, keys) = begun.finish(&called.answer).unwrap();
        assert_eq!(hello, b"hi");
        (keys, called.keys)
    }

    const ID: ConnectionId = ConnectionId(7);

    fn header(number: u64, phase: bool) -> Header {
        Header { phase, connection: ID, path: PathId(1), number }
    }

    fn sealed(sealer: &mut Sealer, number: u64, body: &[u8]) -> (Header, Vec<u8>) {
        let header = header(number, sealer.phase(true));
        let mut datagram = Vec::new();
        header.put(&mut datagram);
        datagram.extend(body);
        sealer.seal(&header, &mut datagram);
        (header, datagram)
    }

    #[test]
    fn what_one_side_seals_the_other_one_opens_and_nobody_else() {
        let (mut one, mut other) = pair();
        let (header, datagram) = sealed(&mut one.sealer, 5, b"body");
        assert_eq!(other.opener.open(&header, &mut datagram.clone()), Some(&b"body"[..]));
        assert_eq!(one.opener.open(&header, &mut datagram.clone()), None);
        for at in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[at] ^= 1;
            assert_eq!(other.opener.open(&header, &mut changed), None, "byte {at}");
        }
        let (_, mut third) = pair();
        assert_eq!(third.opener.open(&header, &mut datagram.clone()), None);
        assert_eq!(other.opener.open(&header, &mut []), None);
        let (header, mut datagram) = sealed(&mut other.sealer, 5, b"");
        assert_eq!(one.opener.open(&header, &mut datagram), Some(&b""[..]));
    }

    #[test]
    fn keys_change_and_what_was_under_way_is_still_opened() {
        let (mut one, mut other) = pair();
        let late = sealed(&mut one.sealer, 0, b"late");
        for change in 1..4 {
            one.sealer.sealed = PACKETS_MAX;
            assert_eq!(one.sealer.phase(false), change % 2 == 0, "the other side has not seen the last change");
            let (header, mut datagram) = sealed(&mut one.sealer, change, b"new");
            assert_eq!(header.phase, change % 2 == 1);
            assert_eq!(other.opener.open(&header, &mut datagram), Some(&b"new"[..]));
            let (header, datagram) = &late;
            let opened = other.opener.open(header, &mut datagram.clone()).is_some();
            assert_eq!(opened, change == 1, "one key back, and no further");
        }
    }

    #[test]
    fn strangers_and_changed_messages_are_refused() {
        let (mine, theirs) = (Secret::generate(), Secret::generate());
        let (mut begun, message) = Initiator::begin(ID, &mine, &theirs.public(), b"").unwrap();
        let unknown = answer(ID, &theirs, &message, b"", |_| false).unwrap_err();
        assert_eq!(unknown, HandshakeError::Unknown(mine.public()));
        assert_eq!(answer(ID, &Secret::generate(), &message, b"", |_| true).unwrap_err(), HandshakeError::Refused);
        let mut changed = message.clone();
        changed[40] ^= 1;
        assert_eq!(answer(ID, &theirs, &changed, b"", |_| true).unwrap_err(), HandshakeError::Refused);
        let other = ConnectionId(ID.0 + 1);
        assert_eq!(
            answer(other, &theirs, &message, b"", |_| true).unwrap_err(),
            HandshakeError::Refused,
            "another name"
        );
        let called = answer(ID, &theirs, &message, b"", |_| true).unwrap();
        let mut forged = called.answer.clone();
        forged[33] ^= 1;
        assert_eq!(begun.finish(&forged).unwrap_err(), HandshakeError::Refused);
        assert!(begun.finish(&called.answer).is_ok(), "the true answer still counts");
    }

    #[test]
    fn keys_are_written_as_digits() {
        let public = Secret::generate().public();
        assert_eq!(public.to_string().parse(), Ok(public));
        assert_eq!("x".repeat(64).parse::<Public>(), Err(KeyError));
        assert_eq!("é".repeat(32).parse::<Public>(), Err(KeyError));
    }
}
