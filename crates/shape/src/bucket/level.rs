//! The arithmetic of a bucket's level, in one text for several widths: the real one, and scaled-down ones in which `proof` tries
//! everything there is.
//!
//! A level and what is added to it or taken from it is a `wide`, signed; rates, times and amounts are `count`s, of half as many bits, so
//! that a product of two of them fits a `wide` without its sign. Where a result does not fit, it is the nearest that does: more than is
//! earned in years at the highest rates, and a debt beyond the width stays one.

macro_rules! arithmetic {
    ($(#[$attribute:meta])* $name:ident: count $count:ty, wide $wide:ty, without its sign $unsigned:ty) => {
        $(#[$attribute])*
        pub(super) mod $name {
            /// What a time at a rate is worth. The product of two counts fits but for its last bit.
            #[inline]
            pub(in super::super) fn earned(elapsed: $count, rate: $count) -> $wide {
                (elapsed as $unsigned * rate as $unsigned).min(<$wide>::MAX as $unsigned) as $wide
            }

            /// The level with `amount` more, which is not negative, up to `depth`; and what there was no room for.
            #[inline]
            pub(in super::super) fn put(level: $wide, depth: $wide, amount: $wide) -> ($wide, $wide) {
                let kept = amount.min(depth.saturating_sub(level));
                (level + kept, amount - kept)
            }

            /// The level when `cost` is taken, be it there or not.
            #[inline]
            pub(in super::super) fn charged(level: $wide, cost: $wide) -> $wide {
                level.saturating_sub(cost)
            }

            /// How long a rate, which is not zero, takes until `cost` is there, rounded up.
            #[inline]
            pub(in super::super) fn wait(level: $wide, cost: $wide, rate: $count) -> $count {
                let missing = cost.saturating_sub(level);
                if missing <= 0 {
                    return 0;
                }
                let missing = missing.unsigned_abs();
                // A narrow division is several times faster, and covers what a packet misses.
                match <$count>::try_from(missing) {
                    Ok(missing) => missing.div_ceil(rate),
                    Err(_) => <$count>::try_from(missing.div_ceil(rate as $unsigned)).unwrap_or(<$count>::MAX),
                }
            }
        }
    };
}

arithmetic! {
    /// The bucket's own.
    real: count u64, wide i128, without its sign u128
}

#[cfg(all(test, not(loom)))]
arithmetic! {
    /// A count of four bits lies in a `u8`: of each product and each level there are 256.
    eight_bits: count u8, wide i8, without its sign u8
}

#[cfg(all(test, not(loom)))]
arithmetic! {
    /// Whose counts have all of their bits.
    sixteen_bits: count u8, wide i16, without its sign u16
}
