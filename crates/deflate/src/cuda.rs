//! The CUDA driver (libcuda.so.1), as much of it as a library above it needs, loaded from the system if it is there.
//!
//! Source: the driver API's manual (docs.nvidia.com/cuda/cuda-driver-api).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

use crate::library::{Library, functions};

/// The first GPU: its primary context, which nvCOMP uses, a stream, and memory.
#[derive(Debug)]
pub(crate) struct Gpu {
    cuda: Cuda,
    device: c_int,
    context: *mut c_void,
    stream: *mut c_void,
    memory: Vec<usize>,
    pinned: Vec<*mut c_void>,
}

/// Page-locked memory of the host's: the GPU copies from and to it by itself, where it has any other copied there first, piece by piece.
/// It is its [`Gpu`]'s, and is not to be used when that has gone.
#[derive(Debug)]
pub(crate) struct Pinned<T> {
    at: NonNull<T>,
    len: usize,
}

/// As many rows of `width` bytes, `pitch` bytes from one to the next on both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) count: usize,
    pub(crate) width: usize,
    pub(crate) pitch: usize,
}

functions! {
    /// 0 is success. `CUdevice` is an `int`, `CUdeviceptr` an address of the GPU's, `CUcontext` and `CUstream` are pointers.
    struct Cuda {
        init: c"cuInit"(c_uint),
        device: c"cuDeviceGet"(*mut c_int, c_int),
        name: c"cuDeviceGetName"(*mut c_char, c_int, c_int),
        version: c"cuDriverGetVersion"(*mut c_int),
        set_flags: c"cuDevicePrimaryCtxSetFlags_v2"(c_int, c_uint),
        retain: c"cuDevicePrimaryCtxRetain"(*mut *mut c_void, c_int),
        release: c"cuDevicePrimaryCtxRelease_v2"(c_int),
        set_current: c"cuCtxSetCurrent"(*mut c_void),
        stream_create: c"cuStreamCreate"(*mut *mut c_void, c_uint),
        stream_synchronize: c"cuStreamSynchronize"(*mut c_void),
        stream_destroy: c"cuStreamDestroy_v2"(*mut c_void),
        alloc: c"cuMemAlloc_v2"(*mut usize, usize),
        free: c"cuMemFree_v2"(usize),
        copy_in: c"cuMemcpyHtoDAsync_v2"(usize, *const c_void, usize, *mut c_void),
        copy_out: c"cuMemcpyDtoHAsync_v2"(*mut c_void, usize, usize, *mut c_void),
        copy_rows: c"cuMemcpy2DAsync_v2"(*const RowsCopy, *mut c_void),
        host_alloc: c"cuMemHostAlloc"(*mut *mut c_void, usize, c_uint),
        host_free: c"cuMemFreeHost"(*mut c_void),
    }
}

/// `CUDA_MEMCPY2D`.
#[derive(Debug)]
#[repr(C)]
struct RowsCopy {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
}

/// One side of it.
#[derive(Debug)]
#[repr(C)]
struct Side {
    /// Where the first row begins.
    x: usize,
    y: usize,
    /// `CUmemorytype`.
    memory: c_uint,
    host: *mut c_void,
    device: usize,
    array: *mut c_void,
    pitch: usize,
}

impl Side {
    fn host(at: *mut c_void, pitch: usize) -> Self {
        Self { x: 0, y: 0, memory: 1, host: at, device: 0, array: ptr::null_mut(), pitch }
    }

    fn device(at: usize, pitch: usize) -> Self {
        Self { x: 0, y: 0, memory: 2, host: ptr::null_mut(), device: at, array: ptr::null_mut(), pitch }
    }
}

/// `CU_CTX_SCHED_BLOCKING_SYNC`: who waits sleeps, where the driver would else spin.
const SLEEP: c_uint = 4;

impl Gpu {
    /// `None`: no driver, or no GPU. The thread has its context then.
    pub(crate) fn load(driver: &CStr) -> Option<Self> {
        // SAFETY: the library's constructors do no harm, and its functions are of these types.
        let cuda = unsafe { Cuda::find(Library::open(driver)?)? };
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: each writes the one value; what was begun here is ended by `drop`.
        unsafe {
            ok((cuda.init)(0))?;
            ok((cuda.device)(&raw mut device, 0))?;
            let _others_use_it = (cuda.set_flags)(device, SLEEP);
            ok((cuda.retain)(&raw mut context, device))?;
        }
        let (stream, memory, pinned) = (ptr::null_mut(), Vec::new(), Vec::new());
        let mut made = Self { cuda, device, context, stream, memory, pinned };
        made.enter()?;
        // SAFETY: it writes the one value.
        ok(unsafe { (cuda.stream_create)(&raw mut made.stream, 0) })?;
        Some(made)
    }

    /// Its name, and its driver's version.
    pub(crate) fn name(&self) -> (String, c_int) {
        let (mut name, mut version) = ([0_u8; 256], 0);
        // SAFETY: they write to what is there, the one no more than it is told, with a zero at its end.
        let is_named = unsafe {
            (self.cuda.version)(&raw mut version);
            (self.cuda.name)(name.as_mut_ptr().cast(), name.len() as c_int, self.device) == 0
        };
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        (if is_named { name } else { String::new() }, version)
    }

    /// Its stream, a `CUstream`.
    pub(crate) fn stream(&self) -> *mut c_void {
        self.stream
    }

    /// Makes its context that of the thread.
    pub(crate) fn enter(&self) -> Option<()> {
        // SAFETY: it was retained.
        ok(unsafe { (self.cuda.set_current)(self.context) })
    }

    /// Memory of its own until it is dropped, for `items` of `len` bytes.
    pub(crate) fn alloc(&mut self, items: usize, len: usize) -> Option<usize> {
        let mut at = 0;
        // SAFETY: it writes the one value.
        ok(unsafe { (self.cuda.alloc)(&raw mut at, items.checked_mul(len)?) })?;
        self.memory.push(at);
        Some(at)
    }

    /// Page-locked memory until it is dropped, for `count` numbers, which are 0.
    pub(crate) fn pin<T: Number>(&mut self, count: usize) -> Option<Pinned<T>> {
        let (mut at, len) = (ptr::null_mut(), count.checked_mul(size_of::<T>())?);
        // SAFETY: it writes the one value.
        ok(unsafe { (self.cuda.host_alloc)(&raw mut at, len, 0) })?;
        self.pinned.push(at);
        let at = NonNull::new(at.cast::<T>())?;
        // SAFETY: it is ours and that long, and zeros are numbers.
        unsafe { at.write_bytes(0, count) };
        Some(Pinned { at, len: count })
    }

    /// Begins to copy the first rows of `from` to its memory: they are to stay as they are until the stream has been waited for.
    pub(crate) fn copy_rows_in(&self, to: usize, from: &Pinned<u8>, rows: Rows) -> Option<()> {
        self.copy_rows(Side::host(from.rows(rows)?, rows.pitch), Side::device(to, rows.pitch), rows)
    }

    /// Begins to copy to the first rows of `to` from its memory: they are there when the stream has been waited for.
    pub(crate) fn copy_rows_out(&self, to: &mut Pinned<u8>, from: usize, rows: Rows) -> Option<()> {
        self.copy_rows(Side::device(from, rows.pitch), Side::host(to.rows(rows)?, rows.pitch), rows)
    }

    fn copy_rows(&self, from: Side, to: Side, rows: Rows) -> Option<()> {
        if rows.width == 0 {
            return Some(());
        }
        let copy = RowsCopy { from, to, width: rows.width, height: rows.count };
        // SAFETY: memory of ours on the GPU, for as many rows; the host's side has them.
        ok(unsafe { (self.cuda.copy_rows)(&raw const copy, self.stream) })
    }

    /// Begins to copy to its memory. Memory that is not page-locked has been read when this returns; any other is there until the
    /// stream has been waited for.
    pub(crate) fn copy_in<T>(&self, to: usize, from: &[T]) -> Option<()> {
        // SAFETY: memory of ours, for at least as much, from a slice that is there for as long as it is read.
        ok(unsafe { (self.cuda.copy_in)(to, from.as_ptr().cast(), size_of_val(from), self.stream) })
    }

    /// Begins to copy from its memory, to what is there until the stream has been waited for.
    pub(crate) fn copy_out<T: Copy>(&self, to: &mut [T], from: usize) -> Option<()> {
        // SAFETY: memory of ours, and room for as much; it is numbers, or uninitialized, of which any bytes are a value.
        ok(unsafe { (self.cuda.copy_out)(to.as_mut_ptr().cast(), from, size_of_val(to), self.stream) })
    }

    /// Waits for what was begun.
    pub(crate) fn synchronize(&self) -> Option<()> {
        // SAFETY: the stream is ours.
        ok(unsafe { (self.cuda.stream_synchronize)(self.stream) })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let _has_failed = self.enter();
        // SAFETY: all of it is ours and not used again; a stream that was not made is none, and the thread has no context afterwards.
        unsafe {
            for at in self.memory.drain(..) {
                (self.cuda.free)(at);
            }
            for at in self.pinned.drain(..) {
                (self.cuda.host_free)(at);
            }
            if !self.stream.is_null() {
                (self.cuda.stream_destroy)(self.stream);
            }
            (self.cuda.set_current)(ptr::null_mut());
            (self.cuda.release)(self.device);
        }
    }
}

impl Pinned<u8> {
    /// Where they begin. `None`: there are not so many.
    fn rows(&self, Rows { count, width, pitch }: Rows) -> Option<*mut c_void> {
        let end = count.checked_sub(1)?.checked_mul(pitch)?.checked_add(width)?;
        (width <= pitch && end <= self.len).then_some(self.at.as_ptr().cast())
    }
}

/// Of which any bytes are a value.
pub(crate) trait Number: Copy {}
impl Number for u8 {}
impl Number for c_int {}
impl Number for usize {}

impl<T: Number> Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: it is that long, and was set to zeros.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl<T: Number> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else's.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

/// Of a code that is 0 for success.
pub(crate) fn ok(code: c_int) -> Option<()> {
    (code == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::{RowsCopy, Side};

    /// Source: `CUDA_MEMCPY2D_st` in cuda.h of 12 and 13.
    #[test]
    fn a_copy_of_rows_is_as_the_drivers() {
        let side = [offset_of!(Side, x), offset_of!(Side, y), offset_of!(Side, memory), offset_of!(Side, host)];
        assert_eq!(side, [0, 8, 16, 24]);
        assert_eq!([offset_of!(Side, device), offset_of!(Side, array), offset_of!(Side, pitch)], [32, 40, 48]);
        let copy = [offset_of!(RowsCopy, to), offset_of!(RowsCopy, width), offset_of!(RowsCopy, height)];
        assert_eq!((copy, size_of::<RowsCopy>()), ([56, 112, 120], 128));
    }
}
