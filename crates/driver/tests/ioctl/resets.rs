//! Resets, by the bytes of their commands, where the driver leaves the firmware out.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{self, NcReset, NcResetReady};
use glia_abi::transport::OpenMode;

use crate::client::{Client, NOWHERE};
use crate::support::Rig;

/// One of each generation.
fn rigs() -> impl Iterator<Item = Rig> {
    let of = |arch| Rig::with(arch, |memory| memory.params.no_reset = true);
    Arch::ALL.into_iter().map(of)
}

#[test]
fn a_request_goes_by_the_callers_pid_and_any_process_may_wait() {
    for rig in rigs() {
        let (client, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        let reset = |nc_map, request_id| NcReset { nc_map, request_id };
        let begun = client.ioctl(file, ioctl::NC_RESET, reset(0b11, 99));
        assert_eq!(begun, Ok(reset(0b11, 7)));
        let ready = |request_id, result| NcResetReady { request_id, result };
        for (client, file) in [(&client, file), (&other, other_file)] {
            for request_id in [7, 8, u32::MAX] {
                let waited = client.ioctl(file, ioctl::NC_RESET_READY, ready(request_id, 77));
                assert_eq!(waited, Ok(ready(request_id, 0)));
            }
        }
    }
}

#[test]
fn the_device_is_ready_and_has_always_been_reset() {
    for rig in rigs() {
        let (client, file) = Client::attached(&rig, 7);
        // It has no struct, so no address matters.
        assert_eq!(client.raw_ioctl(file, ioctl::DEVICE_RESET, NOWHERE), Ok(0));
        for word in [ioctl::DEVICE_READY, ioctl::DEVICE_RESET_STATUS] {
            assert_eq!(client.ioctl(file, word, [77_u8, 77]), Ok([1, 77]));
        }
    }
}

#[test]
fn structs_are_read_and_written_where_the_caller_may_and_files_that_attach_nobody_reset_nothing() {
    for rig in rigs() {
        let (client, file) = Client::attached(&rig, 7);
        let write_only = client.open(OpenMode::WriteOnly).unwrap();
        for word in [
            ioctl::NC_RESET,
            ioctl::NC_RESET_READY,
            ioctl::DEVICE_READY,
            ioctl::DEVICE_RESET_STATUS,
        ] {
            assert_eq!(client.raw_ioctl(file, word, NOWHERE), Err(Errno::EFAULT));
            let answer = client.raw_ioctl(write_only, word, NOWHERE);
            assert_eq!(answer, Err(Errno::EINVAL));
        }
        let answer = client.raw_ioctl(write_only, ioctl::DEVICE_RESET, NOWHERE);
        assert_eq!(answer, Err(Errno::EINVAL));
    }
}
