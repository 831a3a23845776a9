//! The command as its users run it.

mod calibrate;
mod check;
mod common;
mod diff;
mod explain;
mod filter;
mod geometry;
mod golden;
mod import;
mod inspect;
mod json_doc;
mod loads;
mod machines;
mod micro;
mod packaging;
mod pages;
mod record;
mod replay;
mod replay_pages;
mod replay_time;
mod reproduce;
mod rx;
mod snippets;
mod what_if;
mod who;
mod width;
