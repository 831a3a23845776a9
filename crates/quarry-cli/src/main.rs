//! The program `quarry`.
#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(quarry_cli::run(env::args_os(), env::current_exe().ok()))
}
