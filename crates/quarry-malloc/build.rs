//! Links the library so that it stays in the process.

fn main() {
    // Threads may be inside its restartable sequences, and blocks outlive any handle of dlopen.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
