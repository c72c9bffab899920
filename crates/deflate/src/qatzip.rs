//! Intel's QuickAssist cards, by QATzip (libqatzip.so.3), loaded from the system if it is there (package libqatzip3).
//!
//! Source of what is said of QATzip here, of its layouts and of its codes: qatzip.h, qatzip.c and qatzip_utils.c of QATzip 1.0.9 to 1.3.1
//! (github.com/intel/QATzip), all of which are libqatzip.so.3.

use std::ffi::{CStr, c_int, c_long, c_uint, c_ulong, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;

use crate::count::Reason;
use crate::engine::Engine;
use crate::library::{Known, Library, functions};

/// A card of Intel's that compresses whole bodies, in hardware only: where QATzip would compress in software, there is no output.
///
/// A body is cut into pieces of 64 KB that the card compresses beside each other, each without what was before it. All but the last end
/// with a full flush and the last one ends the stream, so that the output is one stream of raw deflate. The card decompresses each
/// piece and compares checksums before it says that it is done.
///
/// # Processes
///
/// It belongs to the process that loaded it. QATzip has one set of the card's instances for all of a process's threads, with memory that
/// the card reads and writes, and a thread that looks for the card's errors every millisecond. `fork` copies what it knows of them and
/// not the thread, and QATzip does not notice. So a server loads it in its workers, and not before it forks: an inherited one must not
/// compress, and with the library loaded a child's exit would stop the instances of its parent. Each thread has one of its own. Whoever
/// else uses QATzip in the process keeps its default of 64 KB pieces, by which the card's memory is sized, and its default format.
///
/// Drop frees QATzip's session, which is memory of the process and nothing else. What is the process's stays until it exits, where the
/// library's destructor gives it back.
///
/// # What may block
///
/// - `load` starts the card for the process, once. It waits for other threads that do, and with qatlib for its manager or for the lock
///   of /dev/vfio, without a limit.
/// - `compress` takes an instance of the card if one is free, and gives up after ten looks at all of them. Of a process's first bodies
///   some wait until pinned memory for an instance is there.
/// - Then it hands the pieces over, with up to 500 pauses for each while the card's ring is full, and sleeps until the answers are there:
///   10 microseconds, and longer each time, up to 64 ms. Nothing but an answer ends that: the card's, or its driver's in its place once
///   that has seen that the card is dead. A card that neither works nor dies holds the thread.
///
/// No thread is started for a body, and no more than half of an instance's 32 buffers are in use for one, so that it waits for none.
#[derive(Debug)]
pub struct Qatzip {
    functions: Functions,
    session: Box<Session>,
    /// The card writes here, and not where the caller wants it: after a failure it may do so late.
    out: Vec<MaybeUninit<u8>>,
    has_failed: bool,
}

// SAFETY: a session is memory that is used by one call at a time, whatever thread that is of.
unsafe impl Send for Qatzip {}

functions! {
    struct Functions {
        init: c"qzInit"(*mut Session, u8),
        setup: c"qzSetupSessionDeflate"(*mut Session, *mut Params),
        compress: c"qzCompress"(*mut Session, *const u8, *mut c_uint, *mut u8, *mut c_uint, c_uint),
        teardown: c"qzTeardownSession"(*mut Session),
        close: c"qzClose"(*mut Session),
    }
}

/// `QzSession_T`.
#[derive(Debug)]
#[repr(C)]
struct Session {
    hw_session_stat: c_long,
    thd_sess_stat: c_int,
    internal: *mut c_void,
    total_in: c_ulong,
    total_out: c_ulong,
}

/// `QzSessionParamsDeflate_T`, with its `QzSessionParamsCommon_T` up to `is_sensitive_mode`. Enumerations are `unsigned int`.
#[derive(Debug)]
#[repr(C)]
struct Params {
    direction: c_uint,
    comp_lvl: c_uint,
    comp_algorithm: u8,
    max_forks: c_uint,
    sw_backup: u8,
    hw_buff_sz: c_uint,
    strm_buff_sz: c_uint,
    input_sz_thrshold: c_uint,
    req_cnt_thrshold: c_uint,
    wait_cnt_thrshold: c_uint,
    polling_mode: c_uint,
    is_sensitive_mode: c_uint,
    huffman_hdr: c_uint,
    data_fmt: c_uint,
}

/// `QZ_OK`.
const OK: c_int = 0;
/// `QZ_DUPLICATE`: the process had begun before.
const DUPLICATE: c_int = 1;
/// `QZ_PARAMS`.
const PARAMS: c_int = -1;
/// `QZ_BUF_ERROR`: the card has answered, and there was no room.
const BUF_ERROR: c_int = -3;
/// `QZ_NOSW_NO_INST_ATTACH`: other threads have all instances.
const NO_INSTANCE: c_int = -103;
/// `QZ_NOSW_LOW_MEM`: no pinned memory for an instance.
const LOW_MEMORY: c_int = -104;

/// `QZ_DIR_COMPRESS`.
const COMPRESS: c_uint = 0;
/// `QZ_DEFLATE`.
const DEFLATE: u8 = 8;
/// `QZ_PERIODICAL_POLLING`.
const SLEEP: c_uint = 0;
/// `QZ_DYNAMIC_HDR`.
const DYNAMIC: c_uint = 0;
/// `QZ_DEFLATE_RAW`.
const RAW: c_uint = 3;
/// `QZ_WAIT_CNT_THRESHOLD_DEFAULT`: of so many calls after a start that failed, none tries again.
const WAIT_CALLS: c_uint = 8;

/// Bytes of a piece, `QZ_HW_BUFF_SZ`: whoever uses an instance first sizes its buffers, and QATzip copies longer pieces beyond them.
const PIECE: usize = 64 << 10;

/// Pieces of a body: half of an instance's buffers (`NUM_BUFF`). With more than it was told, QATzip starts a thread.
const PIECES_MAX: usize = 16;

// SAFETY: it has no constructors that could harm.
static QATZIP: Known = unsafe { Known::new(c"libqatzip.so.3") };

impl Qatzip {
    /// What is shorter QATzip compresses in software, whatever it was told (`QZ_COMP_THRESHOLD_MINIMUM`).
    pub const INPUT_MIN: usize = 128;

    /// What is longer would be more pieces than are handed over at a time.
    pub const INPUT_MAX: usize = PIECES_MAX * PIECE;

    /// Whether its library is there; it is loaded from then on, and the card is not started.
    pub fn is_there() -> bool {
        QATZIP.get().is_some()
    }

    /// Starts the card, if the process has not yet, at a level of 1 to 9. `None`: no library, no card, no such level.
    ///
    /// Cards have fewer: those in the fourth Xeon make no difference among 1 to 5, nor among 6 to 8 (qatlib's dc_session.c). 9 is 8
    /// here: with drivers whose interface is older than 3.0 QATzip compresses at 9 in software, and does not tell.
    pub fn load(level: i32) -> Option<Self> {
        Self::of(QATZIP.get()?, level)
    }

    /// As [`load`](Self::load), of a library by its path.
    pub fn load_from(library: &CStr, level: i32) -> Option<Self> {
        // SAFETY: QATzip has no constructors that could harm.
        Self::of(unsafe { Library::open(library) }?, level)
    }

    fn of(library: Library, level: i32) -> Option<Self> {
        let level = u32::try_from(level).ok().filter(|level| (1..=9).contains(level))?.min(8);
        // SAFETY: its functions are of these types.
        let functions = unsafe { Functions::find(library)? };
        let mut session = Box::new(Session {
            hw_session_stat: 0,
            thd_sess_stat: 0,
            internal: ptr::null_mut(),
            total_in: 0,
            total_out: 0,
        });
        // SAFETY: a session of which nothing is known yet.
        if !matches!(unsafe { (functions.init)(&raw mut *session, 0) }, OK | DUPLICATE) {
            return None;
        }
        let mut made = Self { functions, session, out: Vec::new(), has_failed: false };
        let mut params = Params {
            direction: COMPRESS,
            comp_lvl: level,
            comp_algorithm: DEFLATE,
            max_forks: 0,
            sw_backup: 0,
            hw_buff_sz: PIECE as c_uint,
            strm_buff_sz: PIECE as c_uint,
            input_sz_thrshold: Self::INPUT_MIN as c_uint,
            req_cnt_thrshold: PIECES_MAX as c_uint,
            wait_cnt_thrshold: WAIT_CALLS,
            polling_mode: SLEEP,
            is_sensitive_mode: 0,
            huffman_hdr: DYNAMIC,
            data_fmt: RAW,
        };
        // SAFETY: the session was begun; the parameters are copied.
        let code = unsafe { (functions.setup)(&raw mut *made.session, &raw mut params) };
        (code == OK && made.session.hw_session_stat == c_long::from(OK)).then_some(made)
    }

    /// Whether the card has failed, or may still be at work on a body that QATzip gave up: it is not asked again. Another one can be
    /// loaded in its place.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

impl Drop for Qatzip {
    fn drop(&mut self) {
        // SAFETY: the session is ours, and not used again; one that was not set up has nothing to free.
        unsafe {
            (self.functions.teardown)(&raw mut *self.session);
            (self.functions.close)(&raw mut *self.session);
        }
    }
}

impl Engine for Qatzip {
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason> {
        if self.has_failed || !(Self::INPUT_MIN..=Self::INPUT_MAX).contains(&input.len()) {
            return Err(Reason::Failed);
        }
        let room = room(input.len());
        if self.out.len() < room {
            self.out.resize(room, MaybeUninit::uninit());
        }
        let (mut taken, mut len) = (input.len() as c_uint, room as c_uint);
        // SAFETY: it reads the one and writes at most the other, until the card has answered or, after a failure, the process ends.
        let code = unsafe {
            let to = self.out.as_mut_ptr().cast();
            (self.functions.compress)(&raw mut *self.session, input.as_ptr(), &raw mut taken, to, &raw mut len, 1)
        };
        let (taken, len) = (taken as usize, len as usize);
        if code != OK || taken != input.len() || len == 0 || len > room {
            // Of these codes nothing is under way.
            self.has_failed = !matches!(code, PARAMS | BUF_ERROR | NO_INSTANCE | LOW_MEMORY);
            if self.has_failed {
                mem::forget(mem::take(&mut self.out));
            }
            return Err(Reason::Failed);
        }
        out.get_mut(..len).ok_or(Reason::Failed)?.copy_from_slice(&self.out[..len]);
        Ok(len)
    }
}

/// Bytes that the card has for the output of `len` bytes: `DEST_SZ` of each piece. With less, output that does not fit is a failure of
/// the card's.
const fn room(len: usize) -> usize {
    len + len / 8 + len.div_ceil(PIECE) * 1024
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::{Params, Session};

    /// Source: what `offsetof` and `sizeof` are by qatzip.h of QATzip 1.0.9 and 1.3.1, on x86-64.
    #[test]
    fn layouts_are_those_of_the_library() {
        let session = [
            offset_of!(Session, hw_session_stat),
            offset_of!(Session, thd_sess_stat),
            offset_of!(Session, internal),
            offset_of!(Session, total_in),
            offset_of!(Session, total_out),
            size_of::<Session>(),
        ];
        assert_eq!(session, [0, 8, 16, 24, 32, 40]);
        let params = [
            offset_of!(Params, direction),
            offset_of!(Params, comp_lvl),
            offset_of!(Params, comp_algorithm),
            offset_of!(Params, max_forks),
            offset_of!(Params, sw_backup),
            offset_of!(Params, hw_buff_sz),
            offset_of!(Params, strm_buff_sz),
            offset_of!(Params, input_sz_thrshold),
            offset_of!(Params, req_cnt_thrshold),
            offset_of!(Params, wait_cnt_thrshold),
            offset_of!(Params, polling_mode),
            offset_of!(Params, is_sensitive_mode),
            offset_of!(Params, huffman_hdr),
            offset_of!(Params, data_fmt),
            size_of::<Params>(),
        ];
        assert_eq!(params, [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56]);
    }
}
