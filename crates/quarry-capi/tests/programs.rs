//! Programs in C and C++ with the library, compiled by the system's compilers: linked with both forms of it, as it is
//! installed, with and without restartable sequences, and under valgrind where that is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

#[path = "../install.rs"]
mod install;

const EXAMPLES: [&str; 4] = ["cache.c", "memory.c", "pool.c", "objects.cpp"];

/// A folder with the library installed in it, and the programs of one test.
struct Place {
    folder: TempDir,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linked {
    Shared,
    Static,
    /// Not at all: the program opens it.
    Opened,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (shared, archive) = (built("libquarry_capi.so"), built("libquarry_capi.a"));
        install::install(&shared, &archive, folder.path()).expect("an installed library");
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A line of `quarry.pc` as pkg-config reads it.
    fn pkgconfig(&self, line: &str) -> Vec<String> {
        let path = self.path().join("lib/pkgconfig/quarry.pc");
        let text = std::fs::read_to_string(path).expect("quarry.pc");
        let wanted = format!("{line}:");
        let found = text.lines().find_map(|line| line.strip_prefix(&wanted));
        let mut found = found.expect("the line").to_owned();
        for name in ["libdir", "includedir", "prefix"] {
            let start = format!("{name}=");
            let value = text.lines().find_map(|line| line.strip_prefix(&start));
            found = found.replace(&format!("${{{name}}}"), value.expect("the variable"));
        }
        found.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a program, given from the crate's folder on.
    fn compile(&self, source: &str, linked: Linked) -> PathBuf {
        self.compile_at(&crate_folder().join(source), linked)
    }

    fn compile_at(&self, source: &Path, linked: Linked) -> PathBuf {
        let name = source.file_stem().expect("a name");
        let program = self.path().join(name);
        let is_c = source.extension().is_some_and(|extension| extension == "c");
        let (compiler, standard) = match is_c {
            true => (compiler(&["cc", "gcc", "clang"]), "-std=gnu11"),
            false => (compiler(&["c++", "g++", "clang++"]), "-std=c++17"),
        };
        let mut command = Command::new(compiler);
        command
            .args([
                standard,
                "-O1",
                "-g",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pedantic",
            ])
            .args(["-pthread", "-Wno-use-after-free"])
            .args(self.pkgconfig("Cflags"))
            .arg(source)
            .arg("-o")
            .arg(&program);
        let libraries = self.pkgconfig("Libs");
        match linked {
            Linked::Shared => command.args(libraries),
            Linked::Static => command
                .args(libraries.iter().map(|flag| match flag.as_str() {
                    "-lquarry" => "-l:libquarry.a",
                    flag => flag,
                }))
                .args(self.pkgconfig("Libs.private")),
            Linked::Opened => command.arg("-ldl"),
        };
        let output = command.output().expect("the compiler starts");
        assert!(output.status.success(), "{command:?}: {}", errors(&output));
        program
    }

    /// A command that finds the library.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path().join("lib"));
        command
    }
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The first compiler that is installed.
fn compiler(names: &[&'static str]) -> &'static str {
    let is_there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let found = names.iter().find(is_there).copied();
    found.unwrap_or_else(|| panic!("none of {names:?}: install gcc and g++ (apt-get install g++)"))
}

/// A library that cargo built for these tests.
fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("the test's own path");
    let mut places = program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name));
    places
        .find(|path| path.exists())
        .expect("the library beside the tests")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(mut command: Command) -> Output {
    let output = command.output().expect("the program starts");
    let (status, errors) = (output.status, errors(&output));
    assert!(status.success(), "{command:?}: {status} {errors}");
    output
}

/// Switches restartable sequences off, so that the library locks CPUs in another way.
fn fallback(mut command: Command) -> Command {
    command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    command
}

/// Checks the output of an example, but for figures that depend on the machine.
fn check_example(source: &str, output: &Output) {
    let (out, errors) = (text(output), errors(output));
    match source {
        "cache.c" => {
            assert!(out.starts_with("slabinfo - version: 2.1\n"), "{out}");
            assert!(out.contains("\nsession "), "{out}");
            assert!(out.contains("48 bytes an object"), "{out}");
            assert!(
                errors.contains("cache session still has 33 objects: 0x"),
                "{errors}"
            );
        }
        "memory.c" => assert!(
            out.starts_with("1000 squares, the last is 998001, in"),
            "{out}"
        ),
        "pool.c" => {
            assert!(
                out.starts_with("1 pages in flight\n  1 allocated at an unknown place on CPU "),
                "{out}"
            );
            assert!(out.contains("\n108890 bytes, "), "{out}");
            assert!(
                errors.contains("page pool rx0 was destroyed with 1 pages in flight"),
                "{errors}"
            );
        }
        _ => assert_eq!(out, "249750.0\n"),
    }
}

#[test]
fn examples_run_with_both_forms_of_the_library() {
    let place = Place::new();
    for linked in [Linked::Shared, Linked::Static] {
        for source in EXAMPLES {
            let program = place.compile(&format!("examples/c/{source}"), linked);
            check_example(source, &run(place.command(&program)));
            check_example(source, &run(fallback(place.command(&program))));
        }
    }
}

/// CMake finds the library where it is installed, also after a move, and refuses versions that are no successors.
#[test]
fn cmake_finds_the_library() {
    let place = Place::new();
    let (moved, source) = (place.path().join("moved"), place.path().join("source"));
    std::fs::create_dir_all(&source).expect("a folder");
    std::fs::create_dir(&moved).expect("a folder");
    for name in ["include", "lib"] {
        std::fs::rename(place.path().join(name), moved.join(name)).expect("it moves");
    }
    let examples = crate_folder().join("examples/c");
    let lists = |version: &str| {
        let examples = examples.display();
        format!(
            "cmake_minimum_required(VERSION 3.16)\nproject(users C CXX)\nset(CMAKE_CXX_STANDARD 17)\n\
             find_package(quarry {version} REQUIRED)\nfind_package(Threads REQUIRED)\n\
             add_executable(memory {examples}/memory.c)\ntarget_link_libraries(memory quarry::quarry_static)\n\
             add_executable(objects {examples}/objects.cpp)\n\
             target_link_libraries(objects quarry::quarry Threads::Threads)\n"
        )
    };
    let cmake = |version: &str, folder: &str| {
        std::fs::write(source.join("CMakeLists.txt"), lists(version)).expect("the lists");
        let mut command = Command::new("cmake");
        command.arg("-S").arg(&source);
        command.arg("-B").arg(place.path().join(folder));
        command.arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display()));
        let output = command.output();
        output.expect("cmake starts: install it (apt-get install cmake)")
    };
    for refused in ["0.2", "1", "0.0.9"] {
        let output = cmake(refused, refused);
        assert!(!output.status.success(), "{refused}: {}", text(&output));
        assert!(errors(&output).contains("0.1.0"), "{}", errors(&output));
    }
    let output = cmake("0.1", "build");
    assert!(output.status.success(), "{}", errors(&output));
    let mut build = Command::new("cmake");
    build.arg("--build").arg(place.path().join("build"));
    run(build);
    for (program, source) in [("memory", "memory.c"), ("objects", "objects.cpp")] {
        // CMake notes the library's folder in programs that it has built.
        let program = place.path().join("build").join(program);
        check_example(source, &run(Command::new(program)));
    }
}

/// Without restartable sequences, as valgrind has none, the library works all the same.
#[test]
fn valgrind_finds_nothing() {
    let place = Place::new();
    let there = Command::new("valgrind").arg("--version").output().is_ok();
    for source in EXAMPLES {
        let program = place.compile(&format!("examples/c/{source}"), Linked::Shared);
        let mut command = match there {
            true => {
                let mut command = place.command("valgrind");
                // Fair: else a thread that waits for another may keep it from running for minutes.
                command.args(["-q", "--error-exitcode=99", "--fair-sched=yes"]);
                command.arg(&program);
                command
            }
            false => {
                eprintln!("valgrind is not installed: without it");
                fallback(place.command(&program))
            }
        };
        let output = command.output().expect("the program starts");
        assert!(output.status.success(), "{source}: {}", errors(&output));
        check_example(source, &output);
    }
}

#[test]
fn arguments_flags_and_limits_are_answered() {
    let place = Place::new();
    let program = place.compile("tests/c/family.c", Linked::Shared);
    for command in [place.command(&program), fallback(place.command(&program))] {
        let output = run(command);
        assert_eq!(
            (text(&output).as_str(), errors(&output).as_str()),
            ("ok\n", "")
        );
    }
}

/// The first line is the address of the mistake; the report names it, with its cache and slab if it has any.
#[test]
fn mistakes_are_reported_and_change_nothing() {
    let place = Place::new();
    let program = place.compile("tests/c/mistakes.c", Linked::Shared);
    let mistakes: [(&str, &[&str]); 12] = [
        ("double", &["sessions", "slab 0x", "freed twice"]),
        ("other", &["others", "slab 0x", "of cache sessions"]),
        ("bulk", &["sessions"]),
        ("kfree-stack", &["kfree"]),
        ("kfree-double", &["kmalloc-112", "slab 0x", "freed twice"]),
        ("kfree-mapping", &["kfree"]),
        ("krealloc-stack", &["kfree"]),
        ("kvfree-inside", &["kfree"]),
        ("frame-twice", &["page pool rx7", "was put before"]),
        ("frame-inside", &["page pool rx7", "no page begins there"]),
        (
            "frame-foreign",
            &[
                "page pool rx7",
                "not the first page of a block of this pool",
            ],
        ),
        (
            "leak",
            &["kmem_cache_destroy: cache sessions still has 2 objects"],
        ),
    ];
    for (mistake, words) in mistakes {
        let mut command = place.command(&program);
        let output = command.arg(mistake).output().expect("the program starts");
        let errors = errors(&output);
        assert!(
            output.status.success(),
            "{mistake}: {} {errors}",
            output.status
        );
        let (address, report) = errors.split_once('\n').expect("the address first");
        for word in [&[address], words].concat() {
            assert!(report.contains(word), "{mistake}: no {word} in {errors}");
        }
    }
}

/// Measures find what fast paths do not notice, and end the process with a report that names the program's code.
#[test]
fn hardening_is_the_environments_choice() {
    let place = Place::new();
    let program = place.compile("tests/c/mistakes.c", Linked::Shared);
    let path = program.to_str().expect("plain text").to_owned();
    let run = |mistake, measures| {
        let mut command = place.command(&program);
        command.arg(mistake).env("QUARRY_HARDENED", measures);
        command.output().expect("the program starts")
    };
    for (mistake, measures, words) in [
        ("overrun", "canary", "Redzone overwritten"),
        ("overrun", "1", "Redzone overwritten"),
        ("double", "check", "BUG sessions: Object freed twice"),
        ("other", "1", "of cache sessions"),
        ("kfree-stack", "1", "Free of memory that is no object"),
    ] {
        let output = run(mistake, measures);
        let found = errors(&output);
        let (address, report) = found.split_once('\n').expect("the address first");
        assert_eq!(output.status.code(), None, "{found}");
        for word in [address, words, "called from", &path] {
            assert!(report.contains(word), "{mistake}: no {word} in {found}");
        }
    }
    assert_eq!(run("overrun", "").status.code(), Some(4));
    let message = errors(&run("overrun", "all"));
    assert!(
        message.contains("QUARRY_HARDENED: no measure is named \"all\""),
        "{message}"
    );
}

/// The environment switches debugging on, which finds what else goes unnoticed.
#[test]
fn debugging_is_the_environments_choice() {
    let place = Place::new();
    let program = place.compile("tests/c/mistakes.c", Linked::Shared);
    let run = |letters| {
        let mut command = place.command(&program);
        command.arg("overrun").env("QUARRY_SLUB_DEBUG", letters);
        command.output().expect("the program starts")
    };
    let output = run("FZPU,kmalloc-*");
    let found = errors(&output);
    assert!(output.status.success(), "{found}");
    assert!(found.contains("BUG kmalloc-112: "), "{found}");
    assert!(found.contains("Redzone overwritten"), "{found}");
    // Nothing is checked: the free succeeds, which the program says by its result.
    assert_eq!(run("-").status.code(), Some(4));
    let output = run("what?");
    let message = errors(&output);
    assert!(
        message.starts_with("libquarry: there is no heap: "),
        "{message}"
    );
}

/// Who holds a pool's frames, if the environment asks to note owners: the program's code, and no source of the library.
#[test]
fn pools_name_the_code_that_holds_frames() {
    let place = Place::new();
    let program = place.compile("examples/c/pool.c", Linked::Shared);
    for letters in ["U", "FZPU,session"] {
        let mut command = place.command(&program);
        let output = run({
            command.env("QUARRY_SLUB_DEBUG", letters);
            command
        });
        for report in [text(&output), errors(&output)] {
            assert!(report.contains("\n  1 allocated at 0x"), "{report}");
            let (_, code) = report.split_once("\n  code at 0x").expect("the code");
            let line = code.lines().next().unwrap_or_default();
            let file = format!("({}+0x", program.display());
            assert!(line.contains(&file) && !report.contains(".rs"), "{report}");
        }
    }
}

/// A limit of address space gives ENOMEM, and what was allocated is as it was.
#[test]
fn a_limit_of_memory_is_an_error() {
    let place = Place::new();
    let program = place.compile("tests/c/limited.c", Linked::Shared);
    for kib in [300_000, 1_000_000] {
        let mut command = place.command("sh");
        let program = program.display();
        command.args(["-c", &format!("ulimit -v {kib}; exec {program}")]);
        assert_eq!(text(&run(command)), "ok\n", "{kib}");
    }
}

/// `quarry.hpp`: resources of `std::pmr`, and allocators.
#[test]
fn containers_are_on_caches_and_the_heap() {
    let place = Place::new();
    for linked in [Linked::Shared, Linked::Static] {
        let program = place.compile("tests/c/containers.cpp", linked);
        for command in [place.command(&program), fallback(place.command(&program))] {
            let output = run(command);
            let left = "kmem_cache_destroy: cache cpp-left still has 1 object: 0x";
            assert_eq!(text(&output), "ok\n", "{linked:?}");
            let errors = errors(&output);
            assert!(
                errors.starts_with(left) && errors.lines().count() == 1,
                "{errors}"
            );
        }
    }
}

#[test]
fn it_is_opened_by_threads_closed_and_opened_again() {
    let place = Place::new();
    let program = place.compile("tests/c/reopened.c", Linked::Opened);
    let library = place.path().join("lib/libquarry.so");
    for mut command in [place.command(&program), fallback(place.command(&program))] {
        command.arg(&library);
        assert_eq!(text(&run(command)), "ok\n");
    }
}

#[test]
fn children_of_forks_go_on() {
    let place = Place::new();
    for linked in [Linked::Shared, Linked::Static] {
        let program = place.compile("tests/c/forks.c", linked);
        for command in [place.command(&program), fallback(place.command(&program))] {
            assert_eq!(text(&run(command)), "ok\n", "{linked:?}");
        }
    }
}

/// Each header alone, by the letter of its standards.
#[test]
fn the_headers_are_c11_and_cpp17() {
    let cpp = ["c++", "g++", "clang++"];
    for (names, language, header) in [
        (
            ["cc", "gcc", "clang"],
            ["c", "-std=c11"],
            "include/quarry.h",
        ),
        (cpp, ["c++", "-std=c++17"], "include/quarry.h"),
        (cpp, ["c++", "-std=c++17"], "include/quarry.hpp"),
        (cpp, ["c++", "-std=c++20"], "include/quarry.hpp"),
    ] {
        let mut command = Command::new(compiler(&names));
        command.arg("-x").args(language);
        command.args([
            "-Wall",
            "-Wextra",
            "-pedantic-errors",
            "-Werror",
            "-fsyntax-only",
        ]);
        command.arg("-I").arg(crate_folder().join("include"));
        command.arg(crate_folder().join(header));
        run(command);
    }
}

#[test]
fn the_programs_of_the_guide_run() {
    let place = Place::new();
    let guide = crate_folder().join("../../docs/GUIDE.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    for (fence, name, cache) in [
        ("c", "guide.c", "session"),
        ("cpp", "guide.cpp", "session-node"),
    ] {
        let (_, code) = guide
            .split_once(&format!("```{fence}\n"))
            .expect("a program");
        let (code, _) = code.split_once("```").expect("its end");
        let source = place.path().join(name);
        std::fs::write(&source, code).expect("the program");
        let program = place.compile_at(&source, Linked::Shared);
        let shown = text(&run(place.command(&program)));
        assert!(shown.contains(&format!("\n{cache} ")), "{shown}");
    }
}

/// An older version is replaced, links included.
#[test]
fn it_is_installed_over_an_older_one() {
    let place = Place::new();
    let lib = place.path().join("lib");
    let (shared, archive) = (built("libquarry_capi.so"), built("libquarry_capi.a"));
    install::install(&shared, &archive, place.path()).expect("installed again");
    let target = std::fs::read_link(lib.join("libquarry.so")).expect("a link");
    assert_eq!(target, Path::new("libquarry.so.0"));
    let versioned = lib.join(format!("libquarry.so.{}", env!("CARGO_PKG_VERSION")));
    assert!(versioned.is_file());
    assert_eq!(place.pkgconfig("Libs")[1], "-lquarry");
}
