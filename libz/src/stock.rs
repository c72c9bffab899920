//! Functions that are stock zlib's own: a jump each, so that those with arguments of any number and type pass too.

use std::arch::global_asm;

macro_rules! jumps {
    ($($name:literal)*) => {$(
        #[cfg(target_arch = "x86_64")]
        global_asm!(
            concat!(".section .text.", $name, ",\"ax\",@progbits"),
            ".p2align 4",
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            concat!("jmp weirgate_stock_", $name),
            concat!(".size ", $name, ", . - ", $name),
            ".text",
        );
        #[cfg(target_arch = "aarch64")]
        global_asm!(
            concat!(".section .text.", $name, ",\"ax\",%progbits"),
            ".p2align 4",
            concat!(".globl ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            "bti c",
            concat!("b weirgate_stock_", $name),
            concat!(".size ", $name, ", . - ", $name),
            ".text",
        );
    )*};
}

jumps! {
    "adler32_combine" "adler32_combine64" "crc32_combine" "crc32_combine64" "crc32_combine_gen" "crc32_combine_gen64"
    "crc32_combine_op" "get_crc_table" "gzbuffer" "gzclearerr" "gzclose" "gzclose_r" "gzclose_w" "gzdirect" "gzdopen" "gzeof"
    "gzerror" "gzflush" "gzfread" "gzfwrite" "gzgetc" "gzgetc_" "gzgets" "gzoffset" "gzoffset64" "gzopen" "gzopen64" "gzprintf"
    "gzputc" "gzputs" "gzread" "gzrewind" "gzseek" "gzseek64" "gzsetparams" "gztell" "gztell64" "gzungetc" "gzvprintf" "gzwrite"
    "inflateBack" "inflateBackEnd" "inflateBackInit_" "uncompress" "uncompress2" "zError" "zlibCompileFlags"
}
