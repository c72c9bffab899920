//! C libraries of the system, found when they are asked for.

use std::ffi::{CStr, c_void};
use std::mem;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// A library that stays loaded: threads keep its functions, and some libraries have threads of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(NonNull<c_void>);

// SAFETY: a handle, by which any thread may look for functions.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// A library of the system's that is looked for once: who was forked has what its parent found, whatever root and rights it has by then.
#[derive(Debug)]
pub(crate) struct Known(&'static CStr, OnceLock<Option<Library>>);

impl Known {
    /// # Safety
    ///
    /// Its constructors do no harm.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Self {
        Self(name, OnceLock::new())
    }

    /// `None`: it was not there when it was looked for first.
    pub(crate) fn get(&self) -> Option<Library> {
        // SAFETY: by the promise that this was made with.
        *self.1.get_or_init(|| unsafe { Library::open(self.0) })
    }
}

impl Library {
    /// By its file's name, as dlopen(3) looks for it, or by a path. `None`: there is no such library, or one that it needs.
    ///
    /// # Safety
    ///
    /// Its constructors do no harm.
    pub(crate) unsafe fn open(name: &CStr) -> Option<Self> {
        // SAFETY: the caller's promise.
        NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }).map(Self)
    }

    /// A function. `None`: the library has none of this name.
    ///
    /// # Safety
    ///
    /// `F` is the type of a pointer to that function.
    pub(crate) unsafe fn find<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) }
        // SAFETY: the library is loaded; what it finds is a function's address, which is of type `F` by the caller's promise.
        unsafe {
            let address = NonNull::new(libc::dlsym(self.0.as_ptr(), name.as_ptr()))?;
            Some(mem::transmute_copy::<NonNull<c_void>, F>(&address))
        }
    }
}

/// A table of a library's functions that return a code: a name here, its name there, the types of its arguments.
macro_rules! functions {
    ($(#[$doc:meta])* struct $table:ident { $($field:ident: $name:literal($($argument:ty),* $(,)?),)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        struct $table {
            $($field: unsafe extern "C" fn($($argument),*) -> ::std::ffi::c_int,)*
        }

        impl $table {
            /// `None`: one is missing.
            ///
            /// # Safety
            ///
            /// The library's functions of these names have these types.
            unsafe fn find(library: $crate::library::Library) -> Option<Self> {
                // SAFETY: the caller's promise.
                unsafe { Some(Self { $($field: library.find($name)?,)* }) }
            }
        }
    };
}
pub(crate) use functions;
