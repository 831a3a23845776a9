//! Predictions between boots of kernels that ran one load (`tests/data/boots`, `tests/data/cpus`).

mod boot;
mod class;
mod exact;
mod machines;
mod possible;
mod releases;
