//! The CUDA driver (libcuda.so.1), as much of it as a library above it needs, loaded from the system if it is there.
//!
//! Source: the driver API's manual (docs.nvidia.com/cuda/cuda-driver-api).

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;

use crate::library::{Library, functions};

/// The first GPU: its primary context, which nvCOMP uses, a stream, and memory.
#[derive(Debug)]
pub(crate) struct Gpu {
    cuda: Cuda,
    device: c_int,
    context: *mut c_void,
    stream: *mut c_void,
    memory: Vec<usize>,
}

functions! {
    /// 0 is success. `CUdevice` is an `int`, `CUdeviceptr` an address of the GPU's, `CUcontext` and `CUstream` are pointers.
    struct Cuda {
        init: c"cuInit"(c_uint),
        device: c"cuDeviceGet"(*mut c_int, c_int),
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
        let mut made = Self { cuda, device, context, stream: ptr::null_mut(), memory: Vec::new() };
        made.enter()?;
        // SAFETY: it writes the one value.
        ok(unsafe { (cuda.stream_create)(&raw mut made.stream, 0) })?;
        Some(made)
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
            if !self.stream.is_null() {
                (self.cuda.stream_destroy)(self.stream);
            }
            (self.cuda.set_current)(ptr::null_mut());
            (self.cuda.release)(self.device);
        }
    }
}

/// Of a code that is 0 for success.
pub(crate) fn ok(code: c_int) -> Option<()> {
    (code == 0).then_some(())
}
