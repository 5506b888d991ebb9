//! What the runtime uses memory for: its 22 usage types, and how the report folds them into 12
//! (runtime 2.31, `dma_mem_usage_type_t` and its category tables).
//!
//! Each usage has a [`Category`] that goes to the driver, one for host memory and one for HBM, and
//! one [`Aggregate`] column in the report. The published tables disagree with real logs in places
//! (two entries swapped, one byte lost); what stands here is the reading that the logs confirm, and
//! the rows of `INSTR_POOL` and `IO` are uncertain.

use std::fmt;

use crate::mem::Location;
use crate::usage::Category;

macro_rules! usages {
    ($($value:literal $name:ident $label:literal host $host:literal device $device:literal => $aggregate:ident),* $(,)?) => {
        /// What an allocation of the runtime is for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "each variant is the reference's name in this casing")]
        pub enum MemUsage {
            $($name = $value,)*
        }

        impl MemUsage {
            /// All of them, by value.
            pub const ALL: [Self; 22] = [$(Self::$name,)*];

            /// The reference's name, without its prefix.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// The category that the driver is told; `None` if this usage is not allowed there.
            #[must_use]
            pub const fn category(self, location: Location) -> Option<Category> {
                let raw = match (self, location) {
                    $((Self::$name, Location::Host) => $host,
                    (Self::$name, Location::Device) => $device,)*
                };
                if raw == REFUSED { None } else { Some(Category(raw)) }
            }

            /// The column of the report.
            #[must_use]
            pub const fn aggregate(self) -> Aggregate {
                match self { $(Self::$name => Aggregate::$aggregate,)* }
            }
        }
    };
}

/// How the reference's tables say "not allowed here".
const REFUSED: u32 = 20;

usages! {
    0 Generic "GENERIC" host 4 device 12 => Runtime,
    1 InstrPe "INSTR_PE" host 1 device 8 => ModelCode,
    2 InstrAct "INSTR_ACT" host 1 device 8 => ModelCode,
    3 InstrPool "INSTR_POOL" host 1 device 8 => ModelCode,
    4 Io "IO" host 4 device 12 => Runtime,
    5 DramSpill "DRAM_SPILL" host 4 device 12 => Runtime,
    6 Weight "WEIGHT" host 3 device 10 => ModelConstants,
    7 Notification "NOTIFICATION" host 6 device 16 => ProfilerBuffers,
    8 ActTable "ACT_TABLE" host 4 device 12 => Runtime,
    9 InstrDve "INSTR_DVE" host 1 device 8 => ModelCode,
    10 InstrSp "INSTR_SP" host 1 device 8 => ModelCode,
    11 Scratchpad "SCRATCHPAD" host 20 device 11 => SharedScratchpad,
    12 Tensor "TENSOR" host 2 device 9 => Tensors,
    13 UcodeLib "UCODE_LIB" host 1 device 8 => ModelCode,
    14 PoolStdio "POOL_STDIO" host 4 device 12 => Runtime,
    15 Cc "CC" host 20 device 14 => Collectives,
    16 ScratchpadNotShared "SCRATCHPAD_NOT_SHARED" host 20 device 15 => Scratchpad,
    17 XtCc "XT_CC" host 4 device 12 => Runtime,
    18 DmaRing "DMA_RING" host 17 device 18 => DmaRingsRuntime,
    19 DmaRingSpill "DMA_RING_SPILL" host 17 device 18 => DmaRingsSpill,
    20 DmaRingIo "DMA_RING_IO" host 17 device 18 => DmaRingsIo,
    21 DmaRingCollectives "DMA_RING_COLLECTIVES" host 17 device 18 => DmaRingsCollectives,
}

impl MemUsage {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Position in [`MemUsage::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The usage of this name, whatever its case; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|usage| usage.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for MemUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A column of the runtime's report; several usages fold into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "each variant is its heading in this casing")]
pub enum Aggregate {
    ModelCode,
    ModelConstants,
    Tensors,
    SharedScratchpad,
    Scratchpad,
    Runtime,
    DmaRingsIo,
    DmaRingsSpill,
    DmaRingsCollectives,
    DmaRingsRuntime,
    Collectives,
    ProfilerBuffers,
}

impl Aggregate {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 12] = [
        Self::ModelCode,
        Self::ModelConstants,
        Self::Tensors,
        Self::SharedScratchpad,
        Self::Scratchpad,
        Self::Runtime,
        Self::DmaRingsIo,
        Self::DmaRingsSpill,
        Self::DmaRingsCollectives,
        Self::DmaRingsRuntime,
        Self::Collectives,
        Self::ProfilerBuffers,
    ];

    /// Position in [`Aggregate::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in failure lines and lists.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ModelCode => "model code",
            Self::ModelConstants => "model constants",
            Self::Tensors => "tensors",
            Self::SharedScratchpad => "shared scratchpad",
            Self::Scratchpad => "scratchpad",
            Self::Runtime => "runtime",
            Self::DmaRingsIo => "dma rings io",
            Self::DmaRingsSpill => "dma rings spill",
            Self::DmaRingsCollectives => "dma rings collectives",
            Self::DmaRingsRuntime => "dma rings runtime",
            Self::Collectives => "collectives",
            Self::ProfilerBuffers => "profiler buffers",
        }
    }

    /// The two rows of its heading in the table.
    #[must_use]
    pub const fn heading(self) -> [&'static str; 2] {
        match self {
            Self::ModelCode => ["Model", "Code"],
            Self::ModelConstants => ["Model", "Constants"],
            Self::Tensors => ["", "Tensors"],
            Self::SharedScratchpad => ["Shared", "Scratchpad"],
            Self::Scratchpad => ["", "Scratchpad"],
            Self::Runtime => ["", "Runtime"],
            Self::DmaRingsIo => ["DMA Rings", "IO"],
            Self::DmaRingsSpill => ["DMA Rings", "Spill"],
            Self::DmaRingsCollectives => ["DMA Rings", "Collectives"],
            Self::DmaRingsRuntime => ["DMA Rings", "Runtime"],
            Self::Collectives => ["", "Collectives"],
            Self::ProfilerBuffers => ["Profiler", "Buffers"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sheet's tables, one byte per usage.
    #[test]
    fn categories_and_columns_are_those_of_the_tables() {
        let host = [
            4, 1, 1, 1, 4, 4, 3, 6, 4, 1, 1, 20, 2, 1, 4, 20, 20, 4, 17, 17, 17, 17,
        ];
        let device = [
            12, 8, 8, 8, 12, 12, 10, 16, 12, 8, 8, 11, 9, 8, 12, 14, 15, 12, 18, 18, 18, 18,
        ];
        let columns = [
            5, 0, 0, 0, 5, 5, 1, 11, 5, 0, 0, 3, 2, 0, 5, 10, 4, 5, 9, 7, 6, 8,
        ];
        for (index, usage) in MemUsage::ALL.into_iter().enumerate() {
            assert_eq!(usage.index(), index);
            let category = |location| usage.category(location).map_or(REFUSED, |known| known.0);
            assert_eq!(category(Location::Host), host[index], "{usage}");
            assert_eq!(category(Location::Device), device[index], "{usage}");
            assert_eq!(usage.aggregate().index(), columns[index], "{usage}");
        }
    }

    #[test]
    fn a_usage_is_found_by_its_name() {
        assert_eq!(MemUsage::named("weight"), Some(MemUsage::Weight));
        assert_eq!(MemUsage::named("WEIGHTS"), None);
    }
}
