//! Builds the shim for DPDK's mempool, if this computer has DPDK.

use std::process::Command;

fn pkg_config(arguments: &[&str]) -> Option<String> {
    let output = Command::new("pkg-config").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo::rustc-check-cfg=cfg(dpdk)");
    println!("cargo::rerun-if-changed=dpdk/shim.c");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let Some(flags) = pkg_config(&["--cflags", "libdpdk"]) else {
        return;
    };
    let mut build = cc::Build::new();
    build.file("dpdk/shim.c").opt_level(3).warnings(false);
    for flag in flags.split_whitespace() {
        build.flag(flag);
    }
    // Headers of a version that the shim does not know are as good as none.
    if build.try_compile("quarry_dpdk").is_err() {
        println!("cargo::warning=DPDK is installed, but its headers do not build the shim");
        return;
    }
    for library in ["rte_mempool", "rte_ring", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
    println!("cargo::rustc-cfg=dpdk");
    if let Some(version) = pkg_config(&["--modversion", "libdpdk"]) {
        println!("cargo::rustc-env=QUARRY_DPDK_VERSION={version}");
    }
}
