//! Versions and features: what a runtime asks before anything else. All of it can be asked of a
//! file that attaches nobody.

use glia_abi::errno::Errno;
use glia_abi::ioctl::{self, CompatibleVersion, DeviceBasicInfo, DriverInfo, feature};

use super::Call;

/// What the driver says that it can do: no more than is built. (2.24.7 says 0xff, 2.27.4 0x1ff.)
const FEATURES: u64 = feature::ASYNC_DMA
    | feature::BATCH_DMAQ_INIT
    | feature::BIG_CORE_MAPS
    | feature::MEM_ALLOC_TYPE
    | feature::HBM_SCRUB
    | feature::MEM_ALLOC64
    | feature::CONTIGUOUS_SCRATCHPAD;

/// The hardware's revision. The real one is strapped in the chip.
pub(super) const REVISION: u32 = 0;

/// Direction bits of a command word: the caller gives, or the caller gets.
const DIRECTION_WRITE: u32 = 1;
const DIRECTION_READ: u32 = 2;

/// `COMPATIBLE_VERSION`.
pub(crate) fn compatible_version(call: &Call<'_>) -> Result<(), Errno> {
    let (min, max) = call.profile().compatible_versions;
    call.write(&CompatibleVersion { max, min })
}

/// `DEVICE_BASIC_INFO`.
pub(crate) fn device_basic_info(call: &Call<'_>) -> Result<(), Errno> {
    call.write(&DeviceBasicInfo {
        architecture: call.profile().number(),
        revision: REVISION,
    })
}

/// `DRIVER_INFO_GET`, and the setting form, which nothing supports. A later form with a larger
/// struct is answered with what there is.
pub(crate) fn driver_info(call: &Call<'_>) -> Result<(), Errno> {
    const SIZE_BYTES: u32 = 24;
    let zero_copy = match call.device.dma.has_zero_copy() {
        true => feature::ZEROCOPY,
        false => 0,
    };
    match call.word >> 30 {
        DIRECTION_WRITE => Err(Errno::ENOTSUPP),
        DIRECTION_READ if ioctl::size_field(call.word) >= SIZE_BYTES => call.write(&DriverInfo {
            architecture: call.profile().number(),
            revision: REVISION,
            version: 0,
            size: SIZE_BYTES,
            feature_flags1: FEATURES | zero_copy,
        }),
        _ => Err(Errno::EINVAL),
    }
}
