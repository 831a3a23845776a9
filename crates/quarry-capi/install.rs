//! The library as programs in C and C++ find it: headers, libraries under their names, and files for pkg-config and CMake. Shared by
//! `cargo xtask install-c` and the tests.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// The headers, for C and for C++.
const HEADERS: [(&str, &str); 2] = [
    ("quarry.h", include_str!("include/quarry.h")),
    ("quarry.hpp", include_str!("include/quarry.hpp")),
];
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The name by which programs ask for the library; `build.rs` has it, too.
const SONAME: &str = "libquarry.so.0";
/// Libraries beside the static one (`rustc --print native-static-libs`).
const STATIC_NEEDS: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Targets of CMake: `quarry::quarry`, the shared library, and `quarry::quarry_static`. The folder of the installation is the
/// third above the file's own, so that an installation may be moved.
const CMAKE: &str = r#"get_filename_component(_quarry_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET quarry::quarry)
  add_library(quarry::quarry SHARED IMPORTED)
  set_target_properties(quarry::quarry PROPERTIES
    IMPORTED_LOCATION "${_quarry_prefix}/lib/libquarry.so"
    IMPORTED_SONAME "@SONAME@"
    INTERFACE_INCLUDE_DIRECTORIES "${_quarry_prefix}/include")
  add_library(quarry::quarry_static STATIC IMPORTED)
  set_target_properties(quarry::quarry_static PROPERTIES
    IMPORTED_LOCATION "${_quarry_prefix}/lib/libquarry.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_quarry_prefix}/include"
    INTERFACE_LINK_LIBRARIES "@NEEDS@")
endif()
unset(_quarry_prefix)
"#;
/// The rule of semantic versions: what asks for 0.1 takes 0.1.x, from the asked one on.
const CMAKE_VERSION: &str = r#"set(PACKAGE_VERSION "@VERSION@")
string(REGEX MATCH "^(0\.[0-9]+|[1-9][0-9]*)" _quarry_own "${PACKAGE_VERSION}")
string(REGEX MATCH "^(0\.[0-9]+|[1-9][0-9]*|0$)" _quarry_asked "${PACKAGE_FIND_VERSION}")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION OR NOT (_quarry_asked STREQUAL _quarry_own OR _quarry_asked STREQUAL "0"))
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
"#;

/// Puts the library below `prefix`, an absolute path, in the place of an older one.
///
/// # Errors
///
/// A file that cannot be written.
pub(crate) fn install(shared: &Path, archive: &Path, prefix: &Path) -> io::Result<()> {
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let (pkgconfig, cmake) = (lib.join("pkgconfig"), lib.join("cmake/quarry"));
    fs::create_dir_all(&include)?;
    fs::create_dir_all(&pkgconfig)?;
    fs::create_dir_all(&cmake)?;
    for (name, text) in HEADERS {
        fs::write(include.join(name), text)?;
    }
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
    fs::write(pkgconfig.join("quarry.pc"), text)?;
    let config = CMAKE
        .replace("@SONAME@", SONAME)
        .replace("@NEEDS@", &STATIC_NEEDS.replace(' ', ";"));
    fs::write(cmake.join("quarry-config.cmake"), config)?;
    let version = CMAKE_VERSION.replace("@VERSION@", VERSION);
    fs::write(cmake.join("quarry-config-version.cmake"), version)
}

/// Copies a file. Programs that run keep an older one, as it is not written to.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    fs::copy(from, to).map(|_| ())
}
