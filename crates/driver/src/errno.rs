//! Which error number a caller sees for each refusal. The only place where the two meet.

use glia_abi::errno::Errno;
use glia_abi::transport::PinFault;

use crate::alloc::AllocError;
use crate::bar0::Bar0Refusal;
use crate::chunk::{DeadChunk, PinError};
use crate::claims::ClaimError;
use crate::core_init::InitStateError;
use crate::dma::DmaError;
use crate::dma::descriptors::DescriptorError;
use crate::dma::h2t::H2tError;
use crate::dma::scrub::ScrubError;
use crate::dma::user::QueueError;
use crate::handles::HandleError;
use crate::memory::open::OpenError;
use crate::memory::sweep::SweepError;
use crate::memory::{AccessError, InitError, PublishError, RefError};
use crate::model_lock::LockError;

macro_rules! errno {
    ($error:ty, $($pattern:pat => $errno:expr),+ $(,)?) => {
        impl $error {
            /// The error number that a caller sees.
            #[must_use]
            pub fn errno(&self) -> Errno {
                match self { $($pattern => $errno),+ }
            }
        }

        impl From<$error> for Errno {
            fn from(error: $error) -> Self {
                error.errno()
            }
        }
    };
}

errno! { AllocError,
    Self::SizeTooLarge { .. }
    | Self::NoChannel { .. }
    | Self::NoCore { .. }
    | Self::HostAligned { .. }
    | Self::HostScratchpad
    | Self::AlignTooLarge { .. } => Errno::EINVAL,
    Self::Injected { .. }
    | Self::NoRecord { .. }
    | Self::ZeroSize
    | Self::NoHostMemory { .. }
    | Self::NoDeviceMemory { .. }
    | Self::PlacedMisaligned { .. }
    | Self::ScratchpadBlocked { .. }
    | Self::ScratchpadMisaligned { .. } => Errno::ENOMEM,
    Self::NotAttached { .. } => Errno::EACCES,
    Self::Gone => Errno::ENODEV,
}

errno! { InitError,
    Self::Params(_) | Self::CarveoutMoved { .. } => Errno::EINVAL,
    Self::HandleTable | Self::Pool { .. } => Errno::ENOMEM,
    Self::Carveout { cause, .. } => cause.errno(),
}

// Through the ABI a dead chunk is a handle that does not resolve.
errno! { DeadChunk, _ => Errno::EINVAL }
errno! { AccessError, Self::Dead(dead) => dead.errno(), Self::OutOfBounds { .. } => Errno::EINVAL }
errno! { PinError, Self::Dead(dead) => dead.errno(), Self::TooMany { .. } => Errno::EINVAL }
errno! { RefError, Self::Dead(dead) => dead.errno(), Self::TooMany { .. } => Errno::EINVAL }
errno! { HandleError, _ => Errno::ENOENT }
errno! { PublishError, Self::Dead(dead) => dead.errno(), Self::Handle(error) => error.errno() }
errno! { OpenError, Self::Busy(_) => Errno::EBUSY, Self::Gone => Errno::ENODEV }
errno! { SweepError, _ => Errno::EACCES }
errno! { ClaimError, Self::NoRange { .. } => Errno::EINVAL, Self::TooFew { .. } => Errno::EBUSY }
errno! { LockError,
    Self::NoCore { .. } | Self::NoReader { .. } | Self::NoWriter { .. } => Errno::EINVAL,
    Self::Busy { .. } => Errno::EBUSY,
    Self::OtherModel { .. } => Errno::ENOENT,
    Self::Loaded { .. } => Errno::EALREADY,
    Self::Killed { .. } => Errno::EINTR,
}
errno! { InitStateError, Self::NoCore { .. } => Errno::E2BIG, Self::Killed { .. } => Errno::EINTR }
errno! { Bar0Refusal, _ => Errno::EINVAL }
errno! { DescriptorError,
    Self::Uneven { .. } | Self::Address { .. } => Errno::EINVAL,
    Self::User(_) => Errno::EFAULT,
    Self::Memory(_) => Errno::EIO,
    Self::Copy(cause) => cause.errno(),
}
errno! { ScrubError,
    Self::NoChannel { .. } | Self::NotStarted { .. } | Self::EngineDown { .. } => Errno::EINVAL,
    Self::UnderWay { .. } | Self::InUse { .. } | Self::QueueTaken { .. } => Errno::EBUSY,
    Self::Wrong { .. } => Errno::EIO,
    Self::Dma(cause) => cause.errno(),
}
errno! { QueueError,
    Self::NoQueue { .. }
    | Self::NoEngine { .. }
    | Self::Length { .. }
    | Self::TooSmall { .. }
    | Self::NotAllocatable { .. }
    | Self::Barrier => Errno::EINVAL,
    Self::Taken { .. } => Errno::EALREADY,
    Self::NotSet { .. }
    | Self::Uneven { .. }
    | Self::Unaligned { .. }
    | Self::Completions
    | Self::Doorbell { .. }
    | Self::Size(_) => Errno::EPERM,
    Self::NoRoom { .. } => Errno::ENOMEM,
    Self::Memory(_) => Errno::EIO,
    Self::Dummy(cause) => cause.errno(),
}
errno! { H2tError,
    Self::NoCore { .. } => Errno::ENOENT,
    Self::NoneLeft { .. } => Errno::EBUSY,
    Self::NoQueue { .. } => Errno::EINVAL,
    Self::NotGiven { .. } => Errno::ENXIO,
    Self::Ring(cause) => cause.errno(),
}
errno! { DmaError,
    Self::NoCore { .. }
    | Self::EngineDown { .. }
    | Self::TooLarge { .. }
    | Self::Wraps { .. }
    | Self::NotHost { .. }
    | Self::NotInUse { .. }
    | Self::NoZeroCopy { .. }
    | Self::LeavesChunk { .. }
    | Self::NoBar4 { .. }
    | Self::Size(_) => Errno::EINVAL,
    Self::NotReady { .. } => Errno::EPERM,
    Self::NotGiven { .. } => Errno::ENOENT,
    Self::NoRoom { .. } | Self::NoContexts { .. } | Self::CompletionsFull { .. } => Errno::EBUSY,
    Self::Pin(PinFault::Fault(_)) => Errno::EFAULT,
    Self::Pin(PinFault::NoRoom { .. }) => Errno::ENOMEM,
    Self::TimedOut(_) => Errno::ETIMEDOUT,
    Self::NoMemory { cause, .. } => cause.errno(),
    Self::Memory(_) => Errno::EIO,
}
