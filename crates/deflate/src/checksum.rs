//! Checksums, by libdeflate: several bytes for each cycle, where zlib's take a cycle or more for each.

/// CRC-32 (RFC 1952) of what `crc` is of, and more bytes.
pub fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    // SAFETY: reads the slice.
    unsafe { libdeflate_sys::libdeflate_crc32(crc, bytes.as_ptr().cast(), bytes.len()) }
}

/// Adler-32 (RFC 1950) of what `adler` is of, and more bytes.
pub fn adler32(adler: u32, bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    if bytes.is_empty() {
        // libdeflate's is what it was.
        return (((adler >> 16) % MODULUS) << 16) | ((adler & 0xffff) % MODULUS);
    }
    // SAFETY: reads the slice.
    unsafe { libdeflate_sys::libdeflate_adler32(adler, bytes.as_ptr().cast(), bytes.len()) }
}
