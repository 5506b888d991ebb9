//! The software device and the machine's host memory.
