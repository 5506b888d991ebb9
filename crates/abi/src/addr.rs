//! Addresses as types.
//!
//! An address is not a number: two address spaces must not be mixed, and a sum that wraps is a bug
//! that the reference has in several places. So the types here have no operators. Say
//! [`checked_add`](BusAddr::checked_add), [`checked_offset_from`](BusAddr::checked_offset_from),
//! [`align_up`](BusAddr::align_up); every one of them answers `None` instead of wrapping. Alignment
//! and range arithmetic exist once, in this file.
//!
//! | type | what it counts |
//! | --- | --- |
//! | [`BusAddr`] | an address as the device sees it: HBM, or host memory with the host base of the [arch profile](crate::arch) |
//! | [`HostPa`] | a physical address of host memory, without the host base |
//! | [`UserAddr`] | a virtual address of the process that calls |
//! | [`RegOffset`] | a register's place in BAR0 |

use std::fmt;

/// A power of two, in bytes or units: the only thing that one can align to by masking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alignment(u64);

impl Alignment {
    /// The alignment that every address has.
    pub const ONE: Self = Self(1);
    /// One page of the driver, 4,096 bytes.
    pub const PAGE: Self = Self(crate::PAGE_SIZE_BYTES);

    /// `None` unless `value` is a power of two (so never for 0).
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        if value.is_power_of_two() {
            Some(Self(value))
        } else {
            None
        }
    }

    /// The power of two itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// All bits below the alignment.
    #[must_use]
    pub const fn mask(self) -> u64 {
        self.0 - 1
    }

    /// The largest multiple that is not above `value`.
    #[must_use]
    pub const fn round_down(self, value: u64) -> u64 {
        value & !self.mask()
    }

    /// The smallest multiple that is not below `value`; `None` if it does not fit 64 bits.
    #[must_use]
    pub const fn round_up(self, value: u64) -> Option<u64> {
        match value.checked_add(self.mask()) {
            Some(sum) => Some(self.round_down(sum)),
            None => None,
        }
    }

    /// Whether `value` is a multiple.
    #[must_use]
    pub const fn divides(self, value: u64) -> bool {
        value & self.mask() == 0
    }
}

impl fmt::Display for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What address types have in common, so that [`Span`] can be of any of them.
pub trait Address: Copy + Ord + fmt::Debug {
    /// The address with this number.
    fn from_raw(raw: u64) -> Self;
    /// The number.
    fn raw(self) -> u64;
}

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(u64);

        impl $name {
            /// The address with this number. Every number is an address; whether anything lives
            /// there is another question.
            #[must_use]
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The address `size_bytes` further up; `None` if it would wrap.
            #[must_use]
            pub const fn checked_add(self, size_bytes: u64) -> Option<Self> {
                match self.0.checked_add(size_bytes) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// The address `size_bytes` further down; `None` if it would wrap.
            #[must_use]
            pub const fn checked_sub(self, size_bytes: u64) -> Option<Self> {
                match self.0.checked_sub(size_bytes) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// Bytes from `base` up to this address; `None` if this address lies below `base`.
            #[must_use]
            pub const fn checked_offset_from(self, base: Self) -> Option<u64> {
                self.0.checked_sub(base.0)
            }

            /// Whether the address is a multiple of `alignment`.
            #[must_use]
            pub const fn is_aligned(self, alignment: Alignment) -> bool {
                alignment.divides(self.0)
            }

            /// The lowest aligned address that is not below this one; `None` if it would wrap.
            #[must_use]
            pub const fn align_up(self, alignment: Alignment) -> Option<Self> {
                match alignment.round_up(self.0) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// The highest aligned address that is not above this one.
            #[must_use]
            pub const fn align_down(self, alignment: Alignment) -> Self {
                Self(alignment.round_down(self.0))
            }
        }

        impl Address for $name {
            fn from_raw(raw: u64) -> Self {
                Self(raw)
            }
            fn raw(self) -> u64 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// An address as the device sees it: an HBM address, or a [`HostPa`] with the host base of the
    /// arch profile in its high bits (driver 2.27: what `MEM_GET_PA` reports).
    BusAddr
}
address! {
    /// A physical address of host memory, as the machine's DMA allocator gives it, without the host
    /// base.
    HostPa
}

address! {
    /// A virtual address of the calling process, as it stands in an ioctl's argument. An allegation:
    /// only the caller's [`UserMemory`](crate::transport::UserMemory) can say what lies there.
    UserAddr
}

address! {
    /// Offset of a register from the start of BAR0, in bytes.
    RegOffset
}

/// A half-open range of addresses, `[start, start + size_bytes)`, that is known not to wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span<A> {
    start: A,
    size_bytes: u64,
}

impl<A: Address> Span<A> {
    /// `None` if the end does not fit 64 bits. A size of 0 is an empty span, which contains
    /// nothing.
    #[must_use]
    pub fn new(start: A, size_bytes: u64) -> Option<Self> {
        start.raw().checked_add(size_bytes)?;
        Some(Self { start, size_bytes })
    }

    /// A span that is cut where the address space ends, for sizes that nobody has checked.
    #[must_use]
    pub fn cut(start: A, size_bytes: u64) -> Self {
        let room_bytes = u64::MAX - start.raw();
        Self {
            start,
            size_bytes: size_bytes.min(room_bytes),
        }
    }

    /// First address.
    #[must_use]
    pub fn start(self) -> A {
        self.start
    }

    /// Size in bytes.
    #[must_use]
    pub fn size_bytes(self) -> u64 {
        self.size_bytes
    }

    /// The first address that is not inside any more.
    #[must_use]
    pub fn end(self) -> A {
        // The constructor has checked that this does not wrap.
        A::from_raw(self.start.raw().saturating_add(self.size_bytes))
    }

    /// How far `at` lies above the start; `None` unless `at` is inside.
    #[must_use]
    pub fn offset_of(self, at: A) -> Option<u64> {
        let offset = at.raw().checked_sub(self.start.raw())?;
        (offset < self.size_bytes).then_some(offset)
    }

    /// Whether `at` is inside.
    #[must_use]
    pub fn contains(self, at: A) -> bool {
        self.offset_of(at).is_some()
    }

    /// Whether every address of `other` is inside. An empty span is inside if its start is, or is
    /// this span's end.
    #[must_use]
    pub fn contains_span(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// Whether the two share an address.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start.raw().max(other.start.raw()) < self.end().raw().min(other.end().raw())
    }
}

impl<A: Address + fmt::Display> fmt::Display for Span<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end())
    }
}

/// Whether an access of `size_bytes` at `offset_bytes` stays within `limit_bytes`, without any sum
/// that could wrap (the newer driver's form; 2.24.7 added offset and size and wrapped).
#[must_use]
pub const fn access_fits(offset_bytes: u64, size_bytes: u64, limit_bytes: u64) -> bool {
    size_bytes <= limit_bytes && offset_bytes <= limit_bytes - size_bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers near 0, near 2^64 and anywhere.
    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![0..200_u64, (u64::MAX - 200)..=u64::MAX, any::<u64>()]
    }

    fn any_alignment() -> impl Strategy<Value = Alignment> {
        (0..64_u32).prop_map(|order| Alignment::new(1 << order).unwrap())
    }

    proptest! {
        #[test]
        fn only_powers_of_two_are_alignments(value in any_number()) {
            prop_assert_eq!(Alignment::new(value).is_some(), value.count_ones() == 1);
        }

        #[test]
        fn rounding_up_gives_the_least_multiple_that_is_not_below(value in any_number(), alignment in any_alignment()) {
            let (wide, step) = (u128::from(value), u128::from(alignment.get()));
            let expected = wide.div_ceil(step) * step;
            prop_assert_eq!(alignment.round_up(value).map(u128::from), u64::try_from(expected).ok().map(u128::from));
        }

        #[test]
        fn rounding_down_gives_the_greatest_multiple_that_is_not_above(value in any_number(), alignment in any_alignment()) {
            let down = alignment.round_down(value);
            prop_assert!(alignment.divides(down) && down <= value && value - down < alignment.get());
            prop_assert_eq!(alignment.divides(value), value % alignment.get() == 0);
        }

        #[test]
        fn moving_an_address_is_exact_or_refused(raw in any_number(), size_bytes in any_number()) {
            let at = BusAddr::new(raw);
            prop_assert_eq!(at.checked_add(size_bytes).map(BusAddr::get), raw.checked_add(size_bytes));
            prop_assert_eq!(at.checked_sub(size_bytes).map(BusAddr::get), raw.checked_sub(size_bytes));
            if let Some(up) = at.checked_add(size_bytes) {
                prop_assert_eq!(up.checked_offset_from(at), Some(size_bytes));
                prop_assert_eq!(up.checked_sub(size_bytes), Some(at));
            }
        }

        #[test]
        fn aligned_addresses_bracket_the_address(raw in any_number(), alignment in any_alignment()) {
            let at = HostPa::new(raw);
            let down = at.align_down(alignment);
            prop_assert!(down.is_aligned(alignment) && down <= at);
            match at.align_up(alignment) {
                Some(up) => prop_assert!(up.is_aligned(alignment) && up >= at && (up == down) == at.is_aligned(alignment)),
                None => prop_assert!(!at.is_aligned(alignment)),
            }
        }

        #[test]
        fn a_span_contains_what_128_bit_arithmetic_says(start in any_number(), size in any_number(), at in any_number()) {
            match Span::new(BusAddr::new(start), size) {
                None => {
                    prop_assert!(u128::from(start) + u128::from(size) > u128::from(u64::MAX));
                    prop_assert_eq!(Span::cut(BusAddr::new(start), size).end().get(), u64::MAX);
                }
                Some(span) => {
                    let inside = start <= at && u128::from(at) < u128::from(start) + u128::from(size);
                    prop_assert_eq!(span.contains(BusAddr::new(at)), inside);
                    prop_assert_eq!(span.offset_of(BusAddr::new(at)), inside.then(|| at - start));
                }
            }
        }

        #[test]
        fn spans_overlap_when_one_address_is_in_both(a in 0..60_u64, a_size in 0..20_u64, b in 0..60_u64, b_size in 0..20_u64) {
            let first = Span::new(BusAddr::new(a), a_size).unwrap();
            let second = Span::new(BusAddr::new(b), b_size).unwrap();
            let shared = (0..90).any(|x| first.contains(BusAddr::new(x)) && second.contains(BusAddr::new(x)));
            prop_assert_eq!(first.overlaps(second), shared);
            let all = (b..b + b_size).all(|x| first.contains(BusAddr::new(x)));
            if b_size > 0 {
                prop_assert_eq!(first.contains_span(second), all);
            }
        }

        #[test]
        fn an_access_fits_exactly_when_its_wide_end_does(offset in any_number(), size in any_number(), limit in any_number()) {
            let expected = u128::from(offset) + u128::from(size) <= u128::from(limit);
            prop_assert_eq!(access_fits(offset, size, limit), expected);
        }
    }

    #[test]
    fn the_access_that_wrapped_in_the_reference_is_refused() {
        assert!(!access_fits(u64::MAX - 6, 8, 4096));
    }
}
