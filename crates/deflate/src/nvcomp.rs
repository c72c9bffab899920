//! NVIDIA's GPUs, by nvCOMP (libnvcomp.so.6 or .so.5) and the CUDA driver (libcuda.so.1), loaded from the system if they are there.
//!
//! Source of what is said of nvCOMP here, of its functions and of its codes: its manual and the headers of 5.1 to 6.0
//! (docs.nvidia.com/cuda/nvcomp), which agree on all that is used.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

use crate::cuda::{Gpu, Pinned, Rows, ok};
use crate::engine::Inflater;
use crate::library::{Library, functions};

/// A body of a batch.
#[derive(Debug)]
pub struct Body<'a> {
    input: &'a [u8],
    out: &'a mut [MaybeUninit<u8>],
    /// So much of `out` has been written.
    len: Option<usize>,
}

impl<'a> Body<'a> {
    /// To be compressed into `out`.
    pub fn new(input: &'a [u8], out: &'a mut [MaybeUninit<u8>]) -> Self {
        Self { input, out, len: None }
    }

    /// What is compressed.
    pub fn input(&self) -> &'a [u8] {
        self.input
    }

    /// What it became, as raw deflate (RFC 1951). `None`: it does not fit, is not for this engine, or the engine has failed.
    pub fn output(&self) -> Option<&[u8]> {
        // SAFETY: `set` has written as much.
        self.len.map(|len| unsafe { self.out[..len].assume_init_ref() })
    }

    /// Says what it became: nothing where that does not fit.
    pub fn set(&mut self, output: Option<&[u8]>) {
        self.len = output.and_then(|output| {
            self.out.get_mut(..output.len())?.write_copy_of_slice(output);
            Some(output.len())
        });
    }

    /// Whether it was compressed, and what it became is what it was.
    pub fn is_right(&self) -> bool {
        let mut inflated = Vec::new();
        let is_whole = |raw: &[u8]| Some(Inflater::new()?.inflate(raw, self.input.len(), &mut inflated));
        self.output().and_then(is_whole) == Some(true) && inflated == self.input
    }
}

/// Compresses many bodies at once.
pub trait Batch {
    /// Compresses each of `bodies` by itself, and [sets](Body::set) what it became.
    fn compress(&mut self, bodies: &mut [Body<'_>]);
}

/// A GPU that compresses bodies of up to 64 KB, all of a batch beside each other; longer and empty ones it leaves.
///
/// It is for a process that serves others. A CUDA context does not survive `fork`, takes hundreds of megabytes, and is too much for each
/// of a web server's workers. It belongs to the process that loaded it, and is dropped there. Memory for a whole batch is set aside when it
/// is made: for each body 214 KB for what goes in and out, of the GPU's and page-locked of the host's, and of the GPU's what the algorithm
/// works in, by nvCOMP 5.1 and 6.0 nothing for 0, 0.4 MB for 1, 0.7 MB for 2 and 1.2 MB for 5.
///
/// `load` and `compress` wait for the GPU as long as it takes, and sleep meanwhile. Where the GPU has failed the driver ends the wait with
/// an error; a GPU that neither works nor fails holds the thread. After an error that is not a single body's nothing more is asked of
/// it.
#[derive(Debug)]
pub struct Nvcomp {
    gpu: Gpu,
    nvcomp: Functions,
    options: Options,
    batch: usize,
    /// Bytes for each output.
    stride: usize,
    /// What the algorithm works in, in bytes.
    temp_len: usize,
    at: Places,
    inputs: Pinned<u8>,
    outputs: Pinned<u8>,
    /// Of a batch: the lengths of what goes in, then of what comes out.
    lens: Pinned<usize>,
    statuses: Pinned<c_int>,
    has_failed: bool,
}

// SAFETY: a context, its stream and its memory may be used by any thread that makes the context its own, which each call does.
unsafe impl Send for Nvcomp {}

functions! {
    /// Of nvCOMP; 0 is success. Of the sizes of temporary memory the one that waits is called the same in 5 and 6.
    struct Functions {
        output_max: c"nvcompBatchedDeflateCompressGetMaxOutputChunkSize"(usize, Options, *mut usize),
        temp_len: c"nvcompBatchedDeflateCompressGetTempSizeSync"(
            usize, usize, usize, usize, Options, *mut usize, usize, *mut c_void
        ),
        compress: c"nvcompBatchedDeflateCompressAsync"(
            usize, usize, usize, usize, usize, usize, usize, usize, Options, usize, *mut c_void
        ),
    }
}

/// `nvcompBatchedDeflateCompressOpts_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Options {
    algorithm: c_int,
    reserved: [u8; 60],
}

/// Addresses of the GPU's: arrays of a batch's length.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    inputs: usize,
    outputs: usize,
    /// Each one's address.
    input_pointers: usize,
    output_pointers: usize,
    input_lens: usize,
    output_lens: usize,
    /// `nvcompStatus_t`, an `int`.
    statuses: usize,
    temp: usize,
}

/// Outputs lie at multiples of this, as the driver's memory does; nvCOMP asks for 8 and says that more may be faster.
const ALIGN: usize = 256;

impl Nvcomp {
    /// Bytes: nvCOMP's compressor is not documented for longer ones.
    pub const INPUT_MAX: usize = 64 << 10;

    /// What nvCOMP's header promises of its algorithms: of 0 Huffman codes only, of 1 (its default) little compression, of 2 and 3 (the
    /// same for now) less output than zlib's level 1, of 4 less than zlib's level 6, of 5 the least. Each is slower than the one before.
    /// Of pages, scripts and API answers of some 30 KB it holds for 2 and 5, and 4 makes 5 % more than zlib's level 6.
    pub const ALGORITHM_MAX: i32 = 5;

    /// On the first GPU of those that `CUDA_VISIBLE_DEVICES` leaves, for `batch` bodies at a time. `None`: no driver, no nvCOMP, no GPU,
    /// no memory, no such algorithm, or the GPU could not compress a first body.
    pub fn load(algorithm: i32, batch: usize) -> Option<Self> {
        let names = [c"libnvcomp.so.6", c"libnvcomp.so.5"];
        names.into_iter().find_map(|nvcomp| Self::load_from(c"libcuda.so.1", nvcomp, algorithm, batch))
    }

    /// As [`load`](Self::load), of libraries by their paths.
    pub fn load_from(cuda: &CStr, nvcomp: &CStr, algorithm: i32, batch: usize) -> Option<Self> {
        if batch == 0 || !(0..=Self::ALGORITHM_MAX).contains(&algorithm) {
            return None;
        }
        // SAFETY: the library's constructors do no harm, and its functions are of these types.
        let nvcomp = unsafe { Functions::find(Library::open(nvcomp)?)? };
        let options = Options { algorithm, reserved: [0; 60] };
        let mut gpu = Gpu::load(cuda)?;
        let mut stride = 0;
        // SAFETY: it writes the one number.
        ok(unsafe { (nvcomp.output_max)(Self::INPUT_MAX, options, &raw mut stride) })?;
        stride = stride.checked_next_multiple_of(ALIGN)?;
        let mut at = Places {
            inputs: gpu.alloc(batch, Self::INPUT_MAX)?,
            outputs: gpu.alloc(batch, stride)?,
            input_pointers: gpu.alloc(batch, size_of::<usize>())?,
            output_pointers: gpu.alloc(batch, size_of::<usize>())?,
            input_lens: gpu.alloc(batch, size_of::<usize>())?,
            output_lens: gpu.alloc(batch, size_of::<usize>())?,
            statuses: gpu.alloc(batch, size_of::<c_int>())?,
            temp: 0,
        };
        let pointers = |first: usize, stride: usize| (0..batch).map(|slot| first + slot * stride).collect::<Vec<_>>();
        let arrays = [pointers(at.inputs, Self::INPUT_MAX), pointers(at.outputs, stride), vec![Self::INPUT_MAX; batch]];
        for (to, from) in [at.input_pointers, at.output_pointers, at.input_lens].into_iter().zip(&arrays) {
            gpu.copy_in(to, from)?;
        }
        gpu.synchronize()?;
        let (longest, total, mut temp_len) = (Self::INPUT_MAX, batch * Self::INPUT_MAX, 0);
        // SAFETY: the arrays are of a batch's length and on the GPU, the stream is of its context, and it writes the one number.
        ok(unsafe {
            let (pointers, lens) = (at.input_pointers, at.input_lens);
            (nvcomp.temp_len)(pointers, lens, batch, longest, options, &raw mut temp_len, total, gpu.stream())
        })?;
        at.temp = gpu.alloc(1, temp_len.max(1))?;
        let (inputs, outputs) = (gpu.pin(batch * Self::INPUT_MAX)?, gpu.pin(batch * stride)?);
        let (lens, statuses) = (gpu.pin(batch)?, gpu.pin(batch)?);
        let has_failed = false;
        let mut made =
            Self { gpu, nvcomp, options, batch, stride, temp_len, at, inputs, outputs, lens, statuses, has_failed };
        let mut out = [MaybeUninit::uninit(); 256];
        let mut first = [Body { input: b"weirgate", out: &mut out, len: None }];
        made.compress(&mut first);
        first[0].len.map(|_| made)
    }

    /// The GPU's name, and the version of CUDA that its driver has, as 13000 for 13.0.
    pub fn device(&self) -> (String, i32) {
        self.gpu.name()
    }

    /// Whether it has failed for good. A new one can be loaded when it is gone.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Compresses no more bodies than a batch has, none of them longer than it may be. `None`: the GPU has failed, or nvCOMP has.
    fn go(&mut self, bodies: &mut [&mut Body<'_>]) -> Option<()> {
        let (at, gpu, count) = (self.at, &self.gpu, bodies.len());
        let (lens, statuses) = (&mut self.lens[..count], &mut self.statuses[..count]);
        gpu.enter()?;
        for ((body, input), len) in bodies.iter().zip(self.inputs.chunks_mut(Self::INPUT_MAX)).zip(&mut *lens) {
            input[..body.input.len()].copy_from_slice(body.input);
            *len = body.input.len();
        }
        let width = lens.iter().copied().max()?;
        gpu.copy_rows_in(at.inputs, &self.inputs, Rows { count, width, pitch: Self::INPUT_MAX })?;
        gpu.copy_in(at.input_lens, lens)?;
        // SAFETY: the arrays are of a batch's length and on the GPU, what their pointers point to has the room that nvCOMP asked for, and
        // the stream is of its context.
        ok(unsafe {
            (self.nvcomp.compress)(
                at.input_pointers,
                at.input_lens,
                Self::INPUT_MAX,
                count,
                at.temp,
                self.temp_len,
                at.output_pointers,
                at.output_lens,
                self.options,
                at.statuses,
                gpu.stream(),
            )
        })?;
        gpu.copy_out(statuses, at.statuses)?;
        gpu.copy_out(lens, at.output_lens)?;
        gpu.synchronize()?;
        for (status, len) in statuses.iter().zip(&mut *lens) {
            let is_right = *status == 0 && *len <= self.stride;
            *len = if is_right { *len } else { 0 };
        }
        let width = lens.iter().copied().max()?;
        gpu.copy_rows_out(&mut self.outputs, at.outputs, Rows { count, width, pitch: self.stride })?;
        gpu.synchronize()?;
        for ((body, output), len) in bodies.iter_mut().zip(self.outputs.chunks(self.stride)).zip(&*lens) {
            body.set((*len > 0).then_some(&output[..*len]));
        }
        Some(())
    }
}

impl Batch for Nvcomp {
    fn compress(&mut self, bodies: &mut [Body<'_>]) {
        for body in &mut *bodies {
            body.set(None);
        }
        let takes = |body: &&mut Body<'_>| (1..=Self::INPUT_MAX).contains(&body.input.len());
        let mut taken = bodies.iter_mut().filter(takes).collect::<Vec<_>>();
        for batch in taken.chunks_mut(self.batch) {
            if !self.has_failed && self.go(batch).is_none() {
                self.has_failed = true;
                // What can still be copied is, before the bodies are their owner's again.
                let _has_failed = self.gpu.synchronize();
                for body in batch {
                    body.set(None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::Options;

    /// Source: deflate.h of nvCOMP 5.1 and 6.0.
    #[test]
    fn options_are_as_large_as_the_librarys() {
        assert_eq!([offset_of!(Options, algorithm), offset_of!(Options, reserved), size_of::<Options>()], [0, 4, 64]);
    }
}
