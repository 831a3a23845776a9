//! Replays as a whole: of windows, and of the patterns that mailing-list threads report.

mod one_state;
mod threads;
mod windows;
