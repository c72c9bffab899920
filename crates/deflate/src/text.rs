//! What bytes are: text, numbers in digits, or neither.

/// What a body is by its first bytes. Of numbers, engines differ more in length than of other text; what that saves shall not hide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What is no text, as zlib tells it.
    Binary,
    /// Text of which digits are half or more: tables, series, coordinates.
    Numbers,
    /// All other.
    Text,
}

impl Kind {
    /// All of them, each at its own number.
    pub const ALL: [Self; 3] = [Self::Binary, Self::Numbers, Self::Text];

    pub(crate) fn of(bytes: &[u8]) -> Self {
        if !is_text(bytes) {
            return Self::Binary;
        }
        // Sums of bytes are made many at a time.
        let digits = |chunk: &[u8]| chunk.iter().map(|byte| u8::from(byte.is_ascii_digit())).sum::<u8>();
        let digits: usize = bytes.chunks(255).map(|chunk| usize::from(digits(chunk))).sum();
        if 2 * digits >= bytes.len() { Self::Numbers } else { Self::Text }
    }
}

/// zlib's `detect_data_type`, which asks for literals: the first of its kind is one.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    // Control characters that no text has. All are looked at, so that it is done many at a time.
    let is_binary = |byte: u8| (byte < 7) | (byte.wrapping_sub(14) < 12) | (byte.wrapping_sub(28) < 4);
    let any_binary = |chunk: &[u8]| chunk.iter().fold(false, |any, byte| any | is_binary(*byte));
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 32..);
    !bytes.chunks(512).any(any_binary) && bytes.iter().any(is_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_text_that_is_half_digits() {
        assert_eq!(Kind::of(b"0.1234,0.5678 "), Kind::Numbers);
        assert_eq!(Kind::of(b"id=12"), Kind::Text);
        assert_eq!(Kind::of(&[b"12, 34\n".repeat(1_000), b"x".repeat(3_000)].concat()), Kind::Text);
        assert_eq!(Kind::of(b"1234\0"), Kind::Binary);
        assert_eq!(Kind::of(b""), Kind::Binary);
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
    }
}
