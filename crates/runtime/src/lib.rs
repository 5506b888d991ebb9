#![forbid(unsafe_code)]
//! The runtime: NDL, dmem, DML, tensors.
