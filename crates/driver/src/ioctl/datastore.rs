//! Entries of the [datastore](crate::datastore).

use glia_abi::errno::Errno;
use glia_abi::handle::Pid;
use glia_abi::ioctl::NeuronDs;

use super::Call;
use crate::datastore::ENTRY_SIZE_BYTES;

/// `ACQUIRE_NEURON_DS`: process 0 is the caller, which gets an entry if it has none; any other has to
/// have one.
pub(crate) fn acquire_neuron_ds(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: NeuronDs = call.read()?;
    let store = &call.device.datastore;
    let at = match argument.pid {
        0 => store.acquire(call.caller.pid)?,
        // No process has a negative number.
        other => store.find(Pid::new(u32::try_from(other).map_err(|_| Errno::ENOENT)?))?,
    };
    argument.mmap_offset = at.get();
    // CAST: 256 KiB.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    let size_bytes = ENTRY_SIZE_BYTES as u32;
    argument.size = size_bytes;
    call.write(&argument)
}

/// `RELEASE_NEURON_DS`: process 0 is the caller. Whoever asks for another's does nothing (driver
/// 2.27).
pub(crate) fn release_neuron_ds(call: &Call<'_>) -> Result<(), Errno> {
    let argument: NeuronDs = call.read()?;
    let caller = call.caller.pid;
    if argument.pid == 0 || u32::try_from(argument.pid) == Ok(caller.get()) {
        call.device.datastore.release(caller);
    }
    Ok(())
}
