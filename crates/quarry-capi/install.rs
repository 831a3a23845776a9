//! The library as C programs find it: header, libraries under their names, and a file for pkg-config. Shared by
//! `cargo xtask install-c` and the tests.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

const HEADER: &str = include_str!("include/quarry.h");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The name by which programs ask for the library; `build.rs` has it, too.
const SONAME: &str = "libquarry.so.0";
/// Libraries beside the static one (`rustc --print native-static-libs`).
const STATIC_NEEDS: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Puts the library below `prefix`, an absolute path, in the place of an older one.
///
/// # Errors
///
/// A file that cannot be written.
pub(crate) fn install(shared: &Path, archive: &Path, prefix: &Path) -> io::Result<()> {
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let pkgconfig = lib.join("pkgconfig");
    fs::create_dir_all(&include)?;
    fs::create_dir_all(&pkgconfig)?;
    fs::write(include.join("quarry.h"), HEADER)?;
    replace(archive, &lib.join("libquarry.a"))?;
    let full = format!("libquarry.so.{VERSION}");
    replace(shared, &lib.join(&full))?;
    for (link, target) in [(SONAME, full.as_str()), ("libquarry.so", SONAME)] {
        let link = lib.join(link);
        if link.is_symlink() {
            fs::remove_file(&link)?;
        }
        symlink(target, link)?;
    }
    let text = format!(
        "prefix={}\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\n\
         Name: quarry\nDescription: The Linux kernel's slab allocators for programs\nVersion: {VERSION}\n\
         Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -lquarry\nLibs.private: {STATIC_NEEDS}\n",
        prefix.display()
    );
    fs::write(pkgconfig.join("quarry.pc"), text)
}

/// Copies a file. Programs that run keep an older one, as it is not written to.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    fs::copy(from, to).map(|_| ())
}
