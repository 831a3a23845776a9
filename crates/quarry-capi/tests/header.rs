//! The header is what `cbindgen` makes of the source. `UPDATE_EXPECT=1` writes it.

use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

const HEAD: &str = "\
/*
 * Quarry: the Linux kernel's slab allocators for programs, on one heap of the process.
 *
 * Functions have the kernel's names and meaning. One that fails says so by its result and errno. All can be called from
 * any thread unless they say otherwise, and in the child of a fork. The heap is made when the library is loaded, and stays.
 *
 * A free of memory that is not the heap's, of another cache's object, or of the object freed last on this CPU changes
 * nothing and is reported on the standard error output. As in the kernel, the fast paths do not notice an address inside an
 * object, nor a second free that others came after. QUARRY_HARDENED=1 in the environment finds these on every path, and
 * overruns and writes to free objects; the first report ends the process. A list such as check,fill takes some measures.
 *
 * QUARRY_SLUB_DEBUG in the environment switches debugging on, by the letters of the kernel's slub_debug: FZPU for all
 * caches, FZ,kmalloc-* for some. Writes beyond objects and to free ones are reported then.
 *
 * Made from crates/quarry-capi/src by cbindgen: do not edit.
 */";

#[test]
fn the_header_is_that_of_the_source() {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        style: Style::Tag,
        header: Some(HEAD.to_owned()),
        include_guard: Some("QUARRY_H".to_owned()),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"]
            .map(str::to_owned)
            .to_vec(),
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 130,
        tab_width: 4,
        ..Config::default()
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = ["gfp.rs", "kmalloc.rs", "cache.rs", "pool.rs", "stats.rs"];
    let builder = files.iter().fold(Builder::new(), |builder, file| {
        builder.with_src(source.join(file))
    });
    let bindings = builder.with_config(config).generate().expect("a header");
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header).expect("UTF-8");
    // Rust's section of what callers must do.
    let header = header.replace(" * # Safety\n *\n", " * Rules:\n");
    expect_test::expect_file!["../include/quarry.h"].assert_eq(&header);
}
