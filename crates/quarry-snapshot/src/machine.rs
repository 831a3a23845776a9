//! Texts about a machine that people keep beside slabinfo: what each says.

use std::collections::BTreeMap;

use quarry_trace::cpu_list;

/// The release in `/proc/version` or in the kernel's first message: `Linux version 5.14.0-70 (...) ...`.
pub(crate) fn release_of_version(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("Linux version ")?;
    Some(rest.split_whitespace().next()?.to_string())
}

/// The release in the output of `uname -a`, `Linux HOST RELEASE ...`, or of `uname -r`.
pub(crate) fn release_of_uname(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let first = words.next()?;
    match first {
        "Linux" => words.nth(1).map(str::to_string),
        release => release
            .starts_with(|c: char| c.is_ascii_digit())
            .then(|| release.to_string()),
    }
}

/// The machine in the output of `uname -a`, if its name is not one that many have.
pub(crate) fn host_of_uname(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let name = words
        .next()
        .filter(|word| *word == "Linux")
        .and(words.next())
        .filter(|word| *word != "version")?;
    let release = words.next()?;
    (release.starts_with(|c: char| c.is_ascii_digit()) && release.contains('.')).then_some(())?;
    host(name).map(short_host)
}

/// A name of a machine; none for those that many have, and for the numbers of containers.
pub(crate) fn host(name: &str) -> Option<&str> {
    const CONTAINER_DIGITS: usize = 12;
    const COMMON: [&str; 6] = [
        "localhost",
        "host",
        "hostname",
        "(none)",
        "debian",
        "ubuntu",
    ];
    let short = short_host(name);
    let is_container =
        short.len() == CONTAINER_DIGITS && short.bytes().all(|b| b.is_ascii_hexdigit());
    (!short.is_empty() && !is_container && !COMMON.contains(&short.as_str())).then_some(name)
}

/// A machine's name without its domain, which not all of a text's names may have.
pub(crate) fn short_host(name: &str) -> String {
    match name.parse::<std::net::Ipv4Addr>() {
        Ok(_) => name.to_string(),
        Err(_) => name
            .split('.')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase(),
    }
}

/// Names of architectures, as `uname -m` prints them.
const ARCHITECTURES: [&str; 26] = [
    "x86_64",
    "aarch64",
    "ppc64le",
    "ppc64",
    "s390x",
    "riscv64",
    "loongarch64",
    "mips64",
    "i386",
    "i486",
    "i586",
    "i686",
    "armv5tel",
    "armv6l",
    "armv7l",
    "armv7hl",
    "armv8l",
    "mips",
    "parisc",
    "parisc64",
    "ppc",
    "m68k",
    "sh4",
    "sparc64",
    "alpha",
    "riscv32",
];

/// True for an architecture whose words have 32 bits.
pub(crate) fn has_32_bits(architecture: &str) -> bool {
    const NAMES: [&str; 10] = [
        "i386", "i486", "i586", "i686", "mips", "parisc", "ppc", "m68k", "sh4", "riscv32",
    ];
    NAMES.contains(&architecture) || architecture.starts_with("armv")
}

/// The architecture in the output of `uname -a` or `uname -m`.
pub(crate) fn architecture_of_uname(text: &str) -> Option<&'static str> {
    let mut words = text.split_whitespace().rev();
    words.find_map(|word| ARCHITECTURES.into_iter().find(|known| *known == word))
}

/// Ends of releases by which distributions name the architecture.
const SUFFIXES: [(&str, &str); 16] = [
    ("x86_64", "x86_64"),
    ("amd64", "x86_64"),
    ("aarch64", "aarch64"),
    ("aarch64+16k", "aarch64"),
    ("aarch64+64k", "aarch64"),
    ("arm64", "aarch64"),
    ("arm64-16k", "aarch64"),
    ("powerpc64le", "ppc64le"),
    ("powerpc64le-64k", "ppc64le"),
    ("powerpc64", "ppc64"),
    ("ppc64le", "ppc64le"),
    ("ppc64", "ppc64"),
    ("s390x", "s390x"),
    ("i686", "i686"),
    ("686-pae", "i686"),
    ("riscv64", "riscv64"),
];

/// The architecture that a release ends with, such as `x86_64` of `5.14.0-70.el9.x86_64`.
pub(crate) fn architecture_of_release(release: &str) -> Option<&'static str> {
    let ends = |suffix: &str| {
        let before = release.strip_suffix(suffix);
        before.is_some_and(|before| before.ends_with(['-', '.', '_']))
    };
    let (_, architecture) = SUFFIXES.into_iter().find(|(suffix, _)| ends(suffix))?;
    Some(architecture)
}

/// CPUs in a copy of `/proc/cpuinfo`; those that are on.
pub(crate) fn processors(text: &str) -> Option<u32> {
    let is_processor = |line: &&str| {
        let number = line.strip_prefix("processor").map(str::trim_start);
        // s390 prints "processor 0: version = ...".
        number.is_some_and(|rest| rest.starts_with(|c: char| c == ':' || c.is_ascii_digit()))
    };
    u32::try_from(text.lines().filter(is_processor).count())
        .ok()
        .filter(|count| *count > 0)
}

/// The value behind `name:` in a line of a text such as lscpu's.
pub(crate) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = text.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(line.trim())
}

/// Number of CPUs and one more than the highest, of a list such as `0-3,8`, or of a bare number. The kernel prints a
/// bare number for one CPU only, and that is CPU 0: any other is how many there are.
pub(crate) fn cpus(text: &str) -> Result<(u32, u32), String> {
    let text = text.trim();
    if let Ok(count) = text.parse::<u32>() {
        return Ok((count.max(1), count.max(1)));
    }
    cpu_list(text)
        .ok_or_else(|| format!("{text:?} is neither a list of CPUs such as 0-3 nor their number"))
}

/// Options of a kernel's configuration that this library asks for.
const OPTIONS: [&str; 28] = [
    "64BIT",
    "ARM64",
    "ARM64_16K_PAGES",
    "ARM64_4K_PAGES",
    "ARM64_64K_PAGES",
    "MEMCG",
    "MEMCG_KMEM",
    "MEM_ALLOC_PROFILING",
    "MEM_ALLOC_PROFILING_ENABLED_BY_DEFAULT",
    "NR_CPUS",
    "PAGE_SHIFT",
    "PARTITION_KMALLOC_CACHES",
    "PPC64",
    "PPC_4K_PAGES",
    "PPC_64K_PAGES",
    "RANDOM_KMALLOC_CACHES",
    "S390",
    "SLAB",
    "SLAB_FREELIST_HARDENED",
    "SLAB_FREELIST_RANDOM",
    "SLAB_MERGE_DEFAULT",
    "SLOB",
    "SLUB",
    "SLUB_CPU_PARTIAL",
    "SLUB_DEBUG_ON",
    "SLUB_TINY",
    "SMP",
    "X86_64",
];

/// The options of a configuration that matter here, by name without `CONFIG_`: `y`, `n`, or the value.
pub(crate) fn options(text: &str) -> BTreeMap<String, String> {
    let option = |line: &str| {
        let off = line.strip_prefix("# CONFIG_");
        let off = off.and_then(|line| line.strip_suffix(" is not set"));
        let (name, value) = match off {
            Some(name) => (name, "n"),
            None => line.strip_prefix("CONFIG_")?.split_once('=')?,
        };
        let known = OPTIONS.binary_search(&name).is_ok();
        known.then(|| (name.to_string(), value.trim_matches('"').to_string()))
    };
    text.lines()
        .filter_map(|line| option(line.trim()))
        .collect()
}

/// The page size of a configuration, and the option that says so.
pub(crate) fn page_of_options(options: &BTreeMap<String, String>) -> Option<(u64, &'static str)> {
    let sizes = [
        ("ARM64_4K_PAGES", 4096),
        ("ARM64_16K_PAGES", 16384),
        ("ARM64_64K_PAGES", 65536),
        ("PPC_4K_PAGES", 4096),
        ("PPC_64K_PAGES", 65536),
    ];
    let on = |name: &str| options.get(name).is_some_and(|value| value == "y");
    let named = sizes.into_iter().find(|(name, _)| on(name));
    named.map(|(name, bytes)| (bytes, name)).or_else(|| {
        let shift: u32 = options.get("PAGE_SHIFT")?.parse().ok()?;
        Some((1_u64.checked_shl(shift)?, "PAGE_SHIFT"))
    })
}

/// The architecture of a configuration.
pub(crate) fn architecture_of_options(options: &BTreeMap<String, String>) -> Option<&'static str> {
    let known = [
        ("X86_64", "x86_64"),
        ("ARM64", "aarch64"),
        ("S390", "s390x"),
        ("PPC64", "ppc64le"),
    ];
    let on = |name: &str| options.get(name).is_some_and(|value| value == "y");
    let (_, architecture) = known.into_iter().find(|(name, _)| on(name))?;
    Some(architecture)
}

/// Page size of an architecture that has only one.
pub(crate) fn page_of_architecture(architecture: &str) -> Option<u64> {
    match page_sizes(architecture)? {
        [only] => Some(*only),
        _ => None,
    }
}

/// Sizes of pages that kernels of an architecture are built with, in bytes; `None` of one that is not known.
#[must_use]
pub fn page_sizes(architecture: &str) -> Option<&'static [u64]> {
    match architecture {
        "x86_64" | "s390x" | "i386" | "i486" | "i586" | "i686" => Some(&[4096]),
        "aarch64" => Some(&[4096, 16384, 65536]),
        "ppc64" | "ppc64le" => Some(&[4096, 65536]),
        _ => None,
    }
}

/// Lines of a kernel's log that name the kernel, its command line and its CPUs.
pub(crate) fn log_lines(text: &str) -> String {
    let marks = [
        "Linux version ",
        "ommand line: ",
        "SLUB: HWalign=",
        " nr_cpu_ids:",
        "ainted ",
        "ainted: ",
    ];
    let wanted = text
        .lines()
        .filter(|line| marks.iter().any(|mark| line.contains(mark)));
    wanted.take(16).collect::<Vec<_>>().join("\n")
}

/// The release in the head of a report of the kernel's log: `CPU: 0 PID: 1 Comm: init Not tainted 5.8.0-rc3 #1`.
pub(crate) fn release_of_report(text: &str) -> Option<String> {
    let mut lines = text.lines();
    lines.find_map(|line| {
        let (_, rest) = line.split_once("ainted")?;
        let mut words = rest.split_whitespace();
        let release = words
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))?;
        words.next()?.starts_with('#').then(|| release.to_string())
    })
}

/// The command line in the kernel's log.
pub(crate) fn cmdline_of_log(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.split_once("ommand line: "))?.1;
    Some(line.trim().to_string())
}

/// `nr_cpu_ids` in the kernel's log: `SLUB: HWalign=64, Order=0-3, MinObjects=0, CPUs=16, Nodes=1`, or
/// `setup_percpu: ... nr_cpu_ids:16`.
pub(crate) fn possible_of_log(text: &str) -> Option<u32> {
    let after = |mark: &str, line: &str| -> Option<u32> {
        let (_, rest) = line.split_once(mark)?;
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    let slub = |line: &str| {
        line.contains("SLUB: HWalign=")
            .then(|| after("CPUs=", line))?
    };
    let mut lines = text.lines();
    lines
        .find_map(|line| slub(line).or_else(|| after(" nr_cpu_ids:", line)))
        .filter(|cpus| *cpus > 0)
}

/// Pages that a copy of zoneinfo counts as managed.
pub(crate) fn managed_pages(text: &str) -> Option<u64> {
    let managed = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("managed")).then(|| words.next()?.parse::<u64>().ok())?
    });
    let pages = managed.fold(0, u64::saturating_add);
    (pages > 0).then_some(pages)
}

/// Values of `vm.` sysctls in the output of `sysctl -a`.
pub(crate) fn sysctls(text: &str) -> BTreeMap<String, String> {
    let values = text.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        let name = name.trim();
        name.starts_with("vm.")
            .then(|| (name.to_string(), value.trim().to_string()))
    });
    values.collect()
}

/// Aliases in a listing of `/sys/kernel/slab`, as `ls -l` and `ls -lanR` print it.
pub(crate) fn aliases_of_listing(text: &str) -> BTreeMap<String, String> {
    let aliases = text.lines().filter_map(|line| {
        let (left, target) = line.split_once(" -> ")?;
        let name = left.split_whitespace().next_back()?;
        let own = target.trim().trim_end_matches('/').rsplit('/').next()?;
        (line.starts_with('l') && !own.is_empty()).then(|| (name.to_string(), own.to_string()))
    });
    aliases.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_machines() {
        let of = |text| host_of_uname(text);
        assert_eq!(
            of("Linux Web1.example.com 6.1.0 #1 SMP").as_deref(),
            Some("web1")
        );
        for none in [
            "Linux 6.1.0 x86_64",
            "Linux localhost 6.1.0 #1",
            "6.1.0",
            "Linux 3f2a1b4c5d6e 6.1.0 #1",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_ne!(short_host("10.0.0.1"), short_host("10.0.0.2"));
    }

    #[test]
    fn releases_and_architectures() {
        let version = "Linux version 4.18.0-80.11.2.el8_0.x86_64 (mockbuild@x) (gcc) #1 SMP";
        let release = release_of_version(version).unwrap();
        assert_eq!(release, "4.18.0-80.11.2.el8_0.x86_64");
        assert_eq!(architecture_of_release(&release), Some("x86_64"));
        assert_eq!(
            architecture_of_release("6.1.0-50-powerpc64le"),
            Some("ppc64le")
        );
        assert_eq!(
            architecture_of_release("6.12.117+deb13-arm64-16k"),
            Some("aarch64")
        );
        assert_eq!(architecture_of_release("5.4.0-42-generic"), None);
        assert_eq!(architecture_of_release("5.4-myarm64"), None);
        let uname = "Linux vm 6.18.44 #1 SMP PREEMPT_DYNAMIC @0 aarch64 GNU/Linux\n";
        assert_eq!(release_of_uname(uname).as_deref(), Some("6.18.44"));
        assert_eq!(architecture_of_uname(uname), Some("aarch64"));
        assert_eq!(release_of_uname("5.10.1\n").as_deref(), Some("5.10.1"));
        assert_eq!(release_of_uname("nonsense"), None);
    }

    #[test]
    fn numbers_of_cpus() {
        for (text, expected) in [
            ("0", (1, 1)),
            ("16", (16, 16)),
            ("0-15\n", (16, 16)),
            ("0-3,8", (5, 9)),
        ] {
            assert_eq!(cpus(text), Ok(expected), "{text}");
        }
        for bad in ["", "many", "3-1", "16 CPUs", "-1"] {
            let error = cpus(bad).unwrap_err();
            assert!(error.contains("neither a list of CPUs"), "{bad}: {error}");
        }
        assert_eq!(
            processors("processor\t: 0\nmodel\t: x\nprocessor\t: 1\n"),
            Some(2)
        );
        assert_eq!(
            processors("# processors    : 2\nprocessor 0: version = FF\n"),
            Some(1)
        );
        assert_eq!(processors("processors\n"), None);
    }

    #[test]
    fn configurations() {
        assert!(OPTIONS.is_sorted());
        let text = "# comment\nCONFIG_ARM64=y\n# CONFIG_ARM64_4K_PAGES is not set\n\
            CONFIG_ARM64_64K_PAGES=y\nCONFIG_NR_CPUS=256\nCONFIG_OTHER=y\n";
        let options = options(text);
        assert_eq!(options.len(), 4);
        assert_eq!(options["NR_CPUS"], "256");
        assert_eq!(page_of_options(&options), Some((65536, "ARM64_64K_PAGES")));
        assert_eq!(architecture_of_options(&options), Some("aarch64"));
    }

    #[test]
    fn logs_and_listings() {
        let log = "[    0.0] Linux version 6.1.0 (x)\n[    0.0] Command line: quiet slub_debug=P\nother\n\
            [    0.1] setup_percpu: NR_CPUS:256 nr_cpumask_bits:4 nr_cpu_ids:4 nr_node_ids:1\n\
            [    0.2] SLUB: HWalign=64, Order=0-3, MinObjects=0, CPUs=4, Nodes=1\n";
        let lines = log_lines(log);
        assert_eq!(lines.lines().count(), 4);
        assert_eq!(possible_of_log(&lines), Some(4));
        assert_eq!(
            cmdline_of_log(&lines).as_deref(),
            Some("quiet slub_debug=P")
        );
        let listing = "total 0\ndrwxr-xr-x 2 root root 0 Nov 26 12:47 :0000024\n\
            lrwxrwxrwx 1 0 0 0 Nov 26 12:47 dquot -> :a-0000256\n";
        let aliases = aliases_of_listing(listing);
        assert_eq!(aliases["dquot"], ":a-0000256");
        assert_eq!(aliases.len(), 1);
        assert_eq!(
            managed_pages("  managed  10\n spanned 3\n  managed 5\n"),
            Some(15)
        );
        assert_eq!(sysctls("vm.swappiness = 60\nkernel.x = 1\n").len(), 1);
    }
}
