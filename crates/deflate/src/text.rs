//! What is text, as zlib tells it.

/// zlib's `detect_data_type`, which asks for literals: the first of its kind is one.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    // Control characters that no text has. All are looked at, so that it is done many at a time.
    let is_binary = |byte: u8| (byte < 7) | (byte.wrapping_sub(14) < 12) | (byte.wrapping_sub(28) < 4);
    let any_binary = |chunk: &[u8]| chunk.iter().fold(false, |any, byte| any | is_binary(*byte));
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 32..);
    !bytes.chunks(512).any(any_binary) && bytes.iter().any(is_text)
}
