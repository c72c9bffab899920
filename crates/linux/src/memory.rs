//! The C library's allocator, told what kind of program this is. Read first: mallopt(3).

/// Keeps glibc's allocator to `count` arenas, and large blocks out of them. To be called before threads are started.
///
/// By default every thread gets an arena of its own, up to eight per core, and each keeps what it once needed: a daemon
/// whose three threads allocate alike would hold its peak three times. Elsewhere than on glibc this does nothing.
pub fn limit_arenas(count: u16) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and touches only the allocator's own settings, under its lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, libc::c_int::from(count));
        // Fixed, since glibc otherwise raises it to 32 MB after the first large block is freed, and the heap then keeps
        // the store's buffers for ever.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 10);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = count;
}
