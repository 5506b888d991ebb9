//! The driver's module parameters for memory, with the reference's names and defaults (driver
//! 2.27).
//!
//! The reference reads most of them when a device is set up and one at every allocation; Glia reads
//! them once, when a device's memory is built. A value that the reference would answer with a
//! kernel stop, or that makes no sense, is a [`ParamError`].

use crate::PAGE_SIZE_BYTES;

/// Module parameters of the memory side; sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleParams {
    /// Smallest unit of the device pools; a multiple of the page size. Default 4,096.
    ///
    /// A unit that is no power of two is rounded down to one to give the granule of placement.
    pub mempool_min_alloc_size: u64,
    /// Size of **each** of the four host reserve pools. Default 32 MiB.
    pub mempool_host_memory_size: u64,
    /// Small pool cut from the top of every region. Default 1 GiB. It is left out, as in the
    /// reference, when it is not smaller than the region or not a multiple of the unit.
    pub mempool_small_pool_size: u64,
    /// Requests up to and including this size prefer the small pool. Default 512 KiB.
    pub mempool_small_alloc_max: u64,
    /// Whether resets are left out: whoever asks for one is told that it went well. Default false.
    pub no_reset: bool,
    /// Whether zero copies are offered where copies are staged again after a reset (V2), which zero
    /// copies are not in the reference. Default false.
    pub zerocopy_trn1_override: bool,
}

impl Default for ModuleParams {
    fn default() -> Self {
        Self {
            mempool_min_alloc_size: PAGE_SIZE_BYTES,
            mempool_host_memory_size: 32 << 20,
            mempool_small_pool_size: 1 << 30,
            mempool_small_alloc_max: 512 << 10,
            no_reset: false,
            zerocopy_trn1_override: false,
        }
    }
}

/// A module parameter that cannot be used: its name, the value found, and the rule it broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("module parameter {name} is {value}: it must be {rule}")]
pub struct ParamError {
    /// The parameter's name as the reference spells it.
    pub name: &'static str,
    /// The value found, in bytes.
    pub value: u64,
    /// What is allowed.
    pub rule: &'static str,
}

impl ModuleParams {
    /// Checks every parameter.
    ///
    /// # Errors
    /// [`ParamError`] for the first parameter that breaks its rule: the unit must be a positive
    /// multiple of 4,096 that fits the reference's `int`, and the host reserve must fit the same
    /// type. Sizes of the small pool have no wrong values.
    pub fn validate(&self) -> Result<(), ParamError> {
        // LIMIT: the reference declares both as `int`.
        let int_max = u64::from(i32::MAX.unsigned_abs());
        let unit = self.mempool_min_alloc_size;
        if unit == 0 || !unit.is_multiple_of(PAGE_SIZE_BYTES) || unit > int_max {
            return Err(ParamError {
                name: "mempool_min_alloc_size",
                value: unit,
                rule: "a multiple of 4096 from 4096 to 2147479552",
            });
        }
        if self.mempool_host_memory_size > int_max {
            return Err(ParamError {
                name: "mempool_host_memory_size",
                value: self.mempool_host_memory_size,
                rule: "at most 2147483647",
            });
        }
        Ok(())
    }

    /// The granule of placement as a power of two's exponent: `floor(log2(unit))` (driver 2.27,
    /// `min_order`).
    ///
    /// Meaningful for valid parameters; a unit of 0 counts as one page.
    #[must_use]
    pub fn granule_order(&self) -> u32 {
        self.mempool_min_alloc_size.max(PAGE_SIZE_BYTES).ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_unit(unit: u64) -> ModuleParams {
        ModuleParams {
            mempool_min_alloc_size: unit,
            ..ModuleParams::default()
        }
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let params = ModuleParams::default();
        assert_eq!(params.validate(), Ok(()));
        assert_eq!(params.granule_order(), 12);
        assert_eq!(params.mempool_host_memory_size, 33_554_432);
        assert_eq!(params.mempool_small_pool_size, 1_073_741_824);
        assert_eq!(params.mempool_small_alloc_max, 524_288);
    }

    #[test]
    fn a_unit_that_stops_the_reference_is_named_with_its_rule() {
        for unit in [0, 1, 4095, 4097, 6000, 1 << 31, u64::MAX] {
            let error = with_unit(unit).validate().unwrap_err();
            assert_eq!((error.name, error.value), ("mempool_min_alloc_size", unit));
        }
        let text = with_unit(6000).validate().unwrap_err().to_string();
        assert_eq!(
            text,
            "module parameter mempool_min_alloc_size is 6000: it must be a multiple of 4096 from 4096 to 2147479552"
        );
    }

    #[test]
    fn a_unit_that_is_no_power_of_two_gives_the_granule_below() {
        assert_eq!(with_unit(12_288).validate(), Ok(()));
        assert_eq!(with_unit(12_288).granule_order(), 13);
    }

    #[test]
    fn a_host_reserve_beyond_an_int_is_refused() {
        let params = ModuleParams {
            mempool_host_memory_size: 1 << 31,
            ..ModuleParams::default()
        };
        assert_eq!(
            params.validate().unwrap_err().name,
            "mempool_host_memory_size"
        );
    }
}
