//! Real kernels' reports against the formulas and the predictions.

mod geometry;
mod groundtruth;
mod kinds;
mod page_events;
mod page_texts;
mod page_traffic;
mod pages;
mod slob_recording;
mod whatif;
