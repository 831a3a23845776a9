//! Real kernels' reports against the formulas and the predictions.

mod geometry;
mod groundtruth;
mod pages;
mod whatif;
