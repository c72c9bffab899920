//! Memory that stock zlib is given in place of an allocator's: two blocks, of which it takes what it wants in its order.

use std::ffi::{c_uint, c_void};
use std::ptr;

/// Stock zlib's memory for one stream: a block for its state and one for its window, hash chains and pending output.
#[derive(Debug)]
pub(crate) struct Arena {
    state: *mut u8,
    state_len: usize,
    arrays: *mut u8,
    arrays_len: usize,
    /// How much of the arrays is taken.
    taken: usize,
    has_state: bool,
}

/// Room for stock zlib's `deflate_state`: 6 KB by zlib 1.3.1 on 64-bit machines.
pub(crate) const STATE_LEN: usize = 6_656;

/// What stock zlib's arrays take (zconf.h): a window and its chains, the heads of these, and the pending output.
pub(crate) const fn arrays_len(window_bits: u32, mem_level: u32) -> usize {
    (1 << (window_bits + 2)) + (1 << (mem_level + 9))
}

impl Arena {
    /// Of two blocks that the caller keeps for as long as what is made of them is used, each aligned to 8 bytes.
    pub(crate) const fn new(state: (*mut u8, usize), arrays: (*mut u8, usize)) -> Self {
        let ((state, state_len), (arrays, arrays_len)) = (state, arrays);
        Self { state, state_len, arrays, arrays_len, taken: 0, has_state: false }
    }

    /// Takes all of it back.
    pub(crate) const fn clear(&mut self) {
        (self.taken, self.has_state) = (0, false);
    }

    /// zlib's `zalloc`, whose `opaque` is an arena: its state is one item, its arrays are many.
    pub(crate) unsafe extern "C" fn alloc(opaque: *mut c_void, items: c_uint, size: c_uint) -> *mut c_void {
        // SAFETY: streams are only set up with an arena that lives as long as they do, and that nobody else borrows meanwhile.
        let arena = unsafe { &mut *opaque.cast::<Self>() };
        let wanted = items as usize * size as usize;
        if items == 1 {
            let fits = !arena.has_state && wanted <= arena.state_len;
            arena.has_state |= fits;
            return if fits { arena.state.cast() } else { ptr::null_mut() };
        }
        if wanted > arena.arrays_len - arena.taken {
            return ptr::null_mut();
        }
        let at = arena.taken;
        arena.taken += wanted;
        // SAFETY: `at` is within the block.
        unsafe { arena.arrays.add(at).cast() }
    }

    /// zlib's `zfree`: nothing to do.
    pub(crate) const unsafe extern "C" fn free(_opaque: *mut c_void, _address: *mut c_void) {}
}
