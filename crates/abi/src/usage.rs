//! Allocation categories and the counters they are charged to (driver 2.27, `mem_alloc_category_t`
//! and its usage counters).
//!
//! A request carries a [`Category`] as a raw number, which the driver stores unchecked. Each value
//! of 0 to 19 has a counter; two share one (11 and 19, both scratchpads), and a number outside is
//! charged as uncategorised, by location. The category need not agree with the location: a device
//! chunk of category 1 is charged to "code, host" at its core.

use crate::mem::Location;

/// The category of an allocation, as the caller gave it (open: any number is kept).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Category(pub u32);

macro_rules! categories {
    ($($value:literal $name:ident $doc:literal => $counter:ident),* $(,)?) => {
        impl Category {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// The counter that a chunk of this category and location is charged to.
            #[must_use]
            pub const fn counter(self, location: Location) -> Counter {
                match (self.0, location) {
                    $(($value, _) => Counter::$counter,)*
                    (_, Location::Host) => Counter::UncategorizedHost,
                    (_, Location::Device) => Counter::UncategorizedDevice,
                }
            }

            /// The reference's name without its prefix, in lower case; `None` for a number outside
            /// the table.
            #[must_use]
            pub fn name(self) -> Option<String> {
                match self.0 {
                    $($value => Some(stringify!($name).to_ascii_lowercase()),)*
                    _ => None,
                }
            }
        }
    };
}

categories! {
    0 UNKNOWN_HOST "Host memory of no stated use." => UncategorizedHost,
    1 CODE_HOST "Host memory for code and DMA buffers." => CodeHost,
    2 TENSORS_HOST "Tensors in host memory." => TensorsHost,
    3 CONSTANTS_HOST "Constants in host memory." => ConstantsHost,
    4 MISC_HOST "Application memory on the host." => MiscHost,
    5 NCDEV_HOST "The driver's own host memory." => NcdevHost,
    6 NOTIFICATION_HOST "Notification queues in host memory." => NotificationHost,
    7 UNKNOWN_DEVICE "HBM of no stated use." => UncategorizedDevice,
    8 CODE_DEVICE "Model code in HBM." => CodeDevice,
    9 TENSORS_DEVICE "Tensors in HBM." => TensorsDevice,
    10 CONSTANTS_DEVICE "Constants in HBM." => ConstantsDevice,
    11 SCRATCHPAD_DEVICE "Shared scratchpad in HBM." => ScratchpadDevice,
    12 MISC_DEVICE "Runtime memory in HBM." => MiscDevice,
    13 NCDEV_DEVICE "The driver's own HBM, the carveout first of all." => NcdevDevice,
    14 COLLECTIVES_DEVICE "Collectives in HBM." => CollectivesDevice,
    15 SCRATCHPAD_NONSHARED_DEVICE "Scratchpad of one model in HBM." => ScratchpadNonsharedDevice,
    16 NOTIFICATION_DEVICE "Notification queues in HBM." => NotificationDevice,
    17 DMA_RINGS_HOST "DMA rings in host memory." => DmaRingsHost,
    18 DMA_RINGS_DEVICE "DMA rings in HBM." => DmaRingsDevice,
    19 CONTIGUOUS_SCRATCHPAD_DEVICE "A page of the contiguous scratchpad: placed downward from the end of the main pool." => ScratchpadDevice,
}

impl Category {
    /// How many categories have a name: 0 to 19.
    pub const COUNT: u32 = 20;
}

/// What a chunk's bytes are charged to: two totals and one counter per use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(
    missing_docs,
    reason = "each variant is named for its category; `Category` documents them"
)]
pub enum Counter {
    HostTotal,
    DeviceTotal,
    UncategorizedHost,
    CodeHost,
    TensorsHost,
    ConstantsHost,
    MiscHost,
    NcdevHost,
    NotificationHost,
    UncategorizedDevice,
    CodeDevice,
    TensorsDevice,
    ConstantsDevice,
    ScratchpadDevice,
    MiscDevice,
    NcdevDevice,
    CollectivesDevice,
    ScratchpadNonsharedDevice,
    NotificationDevice,
    DmaRingsHost,
    DmaRingsDevice,
}

impl Counter {
    /// Every counter, totals first.
    pub const ALL: [Self; 21] = [
        Self::HostTotal,
        Self::DeviceTotal,
        Self::UncategorizedHost,
        Self::CodeHost,
        Self::TensorsHost,
        Self::ConstantsHost,
        Self::MiscHost,
        Self::NcdevHost,
        Self::NotificationHost,
        Self::UncategorizedDevice,
        Self::CodeDevice,
        Self::TensorsDevice,
        Self::ConstantsDevice,
        Self::ScratchpadDevice,
        Self::MiscDevice,
        Self::NcdevDevice,
        Self::CollectivesDevice,
        Self::ScratchpadNonsharedDevice,
        Self::NotificationDevice,
        Self::DmaRingsHost,
        Self::DmaRingsDevice,
    ];

    /// The counter's name, in lower case with underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostTotal => "host_total",
            Self::DeviceTotal => "device_total",
            Self::UncategorizedHost => "uncategorized_host",
            Self::CodeHost => "code_host",
            Self::TensorsHost => "tensors_host",
            Self::ConstantsHost => "constants_host",
            Self::MiscHost => "misc_host",
            Self::NcdevHost => "ncdev_host",
            Self::NotificationHost => "notification_host",
            Self::UncategorizedDevice => "uncategorized_device",
            Self::CodeDevice => "code_device",
            Self::TensorsDevice => "tensors_device",
            Self::ConstantsDevice => "constants_device",
            Self::ScratchpadDevice => "scratchpad_device",
            Self::MiscDevice => "misc_device",
            Self::NcdevDevice => "ncdev_device",
            Self::CollectivesDevice => "collectives_device",
            Self::ScratchpadNonsharedDevice => "scratchpad_nonshared_device",
            Self::NotificationDevice => "notification_device",
            Self::DmaRingsHost => "dma_rings_host",
            Self::DmaRingsDevice => "dma_rings_device",
        }
    }

    /// Where the reference shows the counter in sysfs, below `host_mem/` or `device_mem/`; `None`
    /// for the totals.
    #[must_use]
    pub const fn sysfs_leaf(self) -> Option<&'static str> {
        Some(match self {
            Self::HostTotal | Self::DeviceTotal => return None,
            Self::UncategorizedHost | Self::UncategorizedDevice => "uncategorized",
            Self::CodeHost => "dma_buffers",
            Self::TensorsHost | Self::TensorsDevice => "tensors",
            Self::ConstantsHost | Self::ConstantsDevice => "constants",
            Self::MiscHost => "application_memory",
            Self::NcdevHost | Self::NcdevDevice => "driver_memory",
            Self::NotificationHost | Self::NotificationDevice => "notifications",
            Self::CodeDevice => "model_code",
            Self::ScratchpadDevice => "model_shared_scratchpad",
            Self::MiscDevice => "runtime_memory",
            Self::CollectivesDevice => "collectives",
            Self::ScratchpadNonsharedDevice => "nonshared_scratchpad",
            Self::DmaRingsHost | Self::DmaRingsDevice => "dma_rings",
        })
    }

    /// Position in [`Counter::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_stands_at_its_index() {
        for (index, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter.index(), index);
        }
    }

    #[test]
    fn both_scratchpad_categories_share_a_counter() {
        let shared = Category::SCRATCHPAD_DEVICE.counter(Location::Device);
        assert_eq!(
            Category::CONTIGUOUS_SCRATCHPAD_DEVICE.counter(Location::Device),
            shared
        );
    }

    #[test]
    fn a_number_outside_the_table_is_charged_by_location() {
        assert_eq!(
            Category(20).counter(Location::Host),
            Counter::UncategorizedHost
        );
        assert_eq!(
            Category(u32::MAX).counter(Location::Device),
            Counter::UncategorizedDevice
        );
        assert_eq!(Category(20).name(), None);
    }

    #[test]
    fn a_category_keeps_its_counter_wherever_the_chunk_lives() {
        assert_eq!(
            Category::CODE_HOST.counter(Location::Device),
            Counter::CodeHost
        );
    }

    #[test]
    fn names_are_those_of_the_reference() {
        assert_eq!(
            Category(15).name().as_deref(),
            Some("scratchpad_nonshared_device")
        );
        assert_eq!(
            (0..Category::COUNT)
                .filter(|&value| Category(value).name().is_some())
                .count(),
            20
        );
    }
}
