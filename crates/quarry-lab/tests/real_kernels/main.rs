//! What real kernels reported against what the formulas and the predictions say.

mod geometry;
mod groundtruth;
mod pages;
mod whatif;
