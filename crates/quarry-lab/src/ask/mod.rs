//! Requests as users state them: texts of designs, releases and tunables, and all that is filled in where they say
//! nothing. The command, sweeps and Python ask the lab through these, so that they mean the same and get the same
//! answers.

mod answers;
mod clock;
mod geometry;
mod heap;
mod load;
mod look;
mod micro;
mod names;
mod pages;
mod replay;
mod rx;
mod source;
mod what_if;

pub use answers::{Answer, Answers, Cost, How, InputSize, Needs, OfInput, Ready};
pub use clock::Clock;
pub use geometry::Geometry;
pub use heap::HeapFile;
pub use load::{AskLoad, Hackbench, Kernel, Rules, Tbench, TcpRr, WillItScale};
pub use look::Look;
pub use micro::{Micro, MicroRun};
pub use names::{Ask, Figure, Question};
pub use pages::Pages;
pub use quarry_work::load::MEMORY_BYTES;
pub use replay::{DEFAULT_DESIGNS, Replay, Start, When};
pub use rx::Rx;
pub use source::{At, Source};
pub use what_if::{Known, WhatIf};
