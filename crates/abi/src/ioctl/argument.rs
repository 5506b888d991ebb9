//! What the struct behind a command looks like: its fields, their offsets and what they mean.
//!
//! `argument!` declares a struct and says the same once more as data, a [`Layout`], for whoever
//! prints or checks arguments that it has no type for. Offsets are written out and asserted, so
//! that a field of a wrong width does not compile; `zerocopy` refuses gaps, so that padding is
//! written out too.

/// A struct of the ABI.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Its name in this crate.
    pub name: &'static str,
    /// Bytes of the struct, without the entries that follow it.
    pub size_bytes: usize,
    /// Its fields in the order of their offsets, padding too: no byte is left out.
    pub fields: &'static [Field],
    /// The entries that follow the struct, if any do.
    pub tail: Option<Tail>,
}

/// Entries that follow a struct.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    /// An entry.
    pub entry: &'static Layout,
    /// Where the struct says how many entries count: the offset of a `u32`.
    pub count_offset: usize,
    /// Entries that there is always room for; `None` if the caller chooses.
    pub capacity: Option<usize>,
}

/// A field of a struct of the ABI.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Where it begins in the struct.
    pub offset: usize,
    /// Bytes of the field, of all elements together if it is an array.
    pub size_bytes: usize,
    /// Bytes of an element; those of the field if it is no array.
    pub element_size_bytes: usize,
    /// What it says.
    pub kind: Kind,
    /// Who fills it.
    pub flow: Flow,
}

/// What a field says, whatever its type is.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A memory handle.
    Handle,
    /// A pointer to memory of the calling process.
    Pointer,
    /// An address of the device or of the host, or an offset for mmap.
    Address,
    /// A size, or an offset inside a chunk, in bytes.
    Size,
    /// A number without a sign.
    Number,
    /// A number with a sign, in two's complement.
    Signed,
    /// Bits: a map or flags.
    Bits,
    /// The handle of an asynchronous copy: one of [`wait_handle`](super::wait_handle).
    Wait,
    /// Bytes that mean nothing to the driver.
    Opaque,
    /// Entries of this layout.
    Structs(&'static Layout),
    /// Nothing: it is there for the layout alone.
    Pad,
}

/// Who fills a field; of a pointer, the memory behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The caller.
    In,
    /// The driver.
    Out,
    /// The caller, and then the driver; or either, as another field says.
    Both,
}

impl Layout {
    /// Bytes of the struct and of the entries that there is always room for.
    #[must_use]
    pub const fn full_size_bytes(&self) -> usize {
        match self.tail {
            Some(Tail {
                entry,
                capacity: Some(capacity),
                ..
            }) => self.size_bytes + capacity * entry.size_bytes,
            _ => self.size_bytes,
        }
    }
}

/// What a field can be made of.
pub(super) trait Element {
    /// Bytes of one element.
    const SIZE_BYTES: usize;
}

macro_rules! elements {
    ($($type:ty)*) => {
        $(impl Element for $type {
            const SIZE_BYTES: usize = size_of::<$type>();
        })*
    };
}
elements!(u8 u16 u32 u64 i32);

impl<T: Element, const N: usize> Element for [T; N] {
    const SIZE_BYTES: usize = T::SIZE_BYTES;
}

/// Declares a struct of the ABI:
///
/// ```text
///   /// Text.
///   Name, size {
///       offset Flow field: type as Kind,
///   } then Entry by count, capacity
/// ```
///
/// The last line is for structs that entries follow; `count` is a field of the struct.
macro_rules! argument {
    (
        $(#[$doc:meta])*
        $name:ident, $size:literal {
            $($offset:literal $flow:ident $field:ident: $type:ty as $kind:expr,)*
        }
        $(then $entry:ident by $count:ident, $capacity:expr)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes)]
        #[derive(zerocopy::KnownLayout, zerocopy::Immutable)]
        #[repr(C)]
        #[expect(
            missing_docs,
            reason = "fields have the ABI's names; the struct's text tells what is not plain"
        )]
        pub struct $name {
            $(pub $field: $type,)*
        }

        impl $name {
            /// The struct as data.
            pub const LAYOUT: $crate::ioctl::Layout = {
                use $crate::ioctl::Kind::*;
                $crate::ioctl::Layout {
                    name: stringify!($name),
                    size_bytes: $size,
                    fields: &[$($crate::ioctl::Field {
                        name: stringify!($field),
                        offset: $offset,
                        size_bytes: size_of::<$type>(),
                        element_size_bytes:
                            <$type as $crate::ioctl::argument::Element>::SIZE_BYTES,
                        kind: $kind,
                        flow: $crate::ioctl::Flow::$flow,
                    },)*],
                    tail: $crate::ioctl::argument::tail!($name $($entry $count $capacity)?),
                }
            };
        }

        impl $crate::ioctl::argument::Element for $name {
            const SIZE_BYTES: usize = $size;
        }

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

macro_rules! tail {
    ($name:ident) => {
        None
    };
    ($name:ident $entry:ident $count:ident $capacity:expr) => {
        Some($crate::ioctl::Tail {
            entry: &$entry::LAYOUT,
            count_offset: std::mem::offset_of!($name, $count),
            capacity: $capacity,
        })
    };
}

pub(super) use {argument, tail};
