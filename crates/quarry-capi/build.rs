//! Links the library so that it stays in the process, and names its interface.

fn main() {
    // Threads may be inside its restartable sequences, and objects outlive any handle of dlopen.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The name that programs ask the dynamic linker for; `install.rs` has it, too.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libquarry.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
