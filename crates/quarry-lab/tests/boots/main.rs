//! Predictions between boots of kernels that ran one load (`tests/data/boots`, `tests/data/cpus`).

mod class;
mod machines;
mod releases;
