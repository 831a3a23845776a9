//! Block maps of this machine.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use quarry_sim::PAGE_BYTES;

use super::fold::{Fold, flags_all_of_free, free_heads};
use super::{Block, BlockMap};
use crate::file::{ReportError, at, explain_permission};
use crate::zoneinfo::Zoneinfo;

/// Bytes of memory after which a thread may begin. Compound pages are aligned to their size, and none but hugetlb's, whose pages all
/// have a flag, is larger.
const PART_BYTES: u64 = 1 << 30;

/// Pages whose flags are read at a time: 256 KiB of them.
const READ_PAGES: usize = 1 << 15;

/// Threads that read at a time. The kernel takes 50 to 100 ns for a page's flags, so 1 TiB takes one thread half a minute.
const THREADS_MAX: usize = 16;

/// Free blocks after which it is clear whether only their first pages have a flag.
const HEADS_MIN: usize = 1000;

impl BlockMap {
    /// Reads where this machine's pages are; `page_bytes` is the size of a page. The files are below `root`.
    ///
    /// # Errors
    ///
    /// [`ReportError::Read`] if the kernel has no `/proc/kpageflags`, or lets only root read it; [`ReportError::Bad`] if pages have no
    /// such size.
    pub fn read(root: &Path, page_bytes: u64) -> Result<Self, ReportError> {
        const FLAGS: &str = "/proc/kpageflags";
        let failed = |source| {
            let file = at(root, FLAGS).display().to_string();
            explain_permission(ReportError::Read { file, source })
        };
        if !PAGE_BYTES.contains(&page_bytes) {
            let what = format!("pages of {page_bytes} bytes are not known");
            return Err(ReportError::bad(FLAGS, "page_size", what));
        }
        let flags = File::open(at(root, FLAGS)).map_err(failed)?;
        let on_cpu_lists = Zoneinfo::read(&at(root, "/proc/zoneinfo")).ok();
        let parts = parts(&memory(root), page_bytes);
        let source = Source {
            flags: &flags,
            page_bytes,
        };
        let is_free_guessed = source.heads_only(&parts).map_err(failed)?;
        Ok(Self {
            page_bytes,
            on_cpu_lists: on_cpu_lists.map(|zones| zones.on_cpu_lists()),
            is_free_guessed,
            blocks: source.fold(&parts, is_free_guessed).map_err(failed)?,
        })
    }
}

/// Ranges of pages inside one [`PART_BYTES`].
type Part = Vec<Range<u64>>;

struct Source<'f> {
    flags: &'f File,
    page_bytes: u64,
}

impl Source<'_> {
    /// True if only the first page of a free block has a flag, by as many parts as that takes.
    fn heads_only(&self, parts: &[Part]) -> io::Result<bool> {
        let (mut heads, mut all) = (0, false);
        for range in parts.iter().flatten() {
            self.each(range, |first, flags| {
                heads += free_heads(flags);
                all |= flags_all_of_free(first, flags);
                !all && heads < HEADS_MIN
            })?;
            if all || heads >= HEADS_MIN {
                break;
            }
        }
        Ok(!all && heads > 0)
    }

    /// Folds all parts, on several threads, each with parts that follow each other.
    fn fold(&self, parts: &[Part], heads_only: bool) -> io::Result<Vec<Block>> {
        let work = |parts: &[Part]| -> io::Result<Vec<Block>> {
            let mut fold = Fold::new(self.page_bytes, heads_only);
            for range in parts.iter().flatten() {
                fold.seek(range.start);
                self.each(range, |_, flags| {
                    fold.add(flags);
                    true
                })?;
            }
            Ok(fold.blocks)
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(THREADS_MAX).min(parts.len().max(1));
        let each = parts.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            let mut shares = parts.chunks(each);
            let first = shares.next().unwrap_or_default();
            let others: Vec<_> = shares
                .map(|share| scope.spawn(move || work(share)))
                .collect();
            let mut blocks = work(first)?;
            for other in others {
                let other = other.join();
                blocks.extend(other.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(blocks)
        })
    }

    /// Calls `take` with the flags of a range of pages, a piece at a time, until it returns `false` or the file ends.
    fn each(
        &self,
        range: &Range<u64>,
        mut take: impl FnMut(u64, &[u64]) -> bool,
    ) -> io::Result<()> {
        const FLAGS_BYTES: usize = size_of::<u64>();
        let mut bytes = vec![0_u8; READ_PAGES * FLAGS_BYTES];
        let mut flags = Vec::with_capacity(READ_PAGES);
        let mut first = range.start;
        while first < range.end {
            let pages =
                usize::try_from(range.end - first).map_or(READ_PAGES, |left| left.min(READ_PAGES));
            let wanted = &mut bytes[..pages * FLAGS_BYTES];
            let read = self.flags.read_at(wanted, first * FLAGS_BYTES as u64)?;
            let (words, _) = wanted[..read].as_chunks::<FLAGS_BYTES>();
            flags.clear();
            flags.extend(words.iter().map(|word| u64::from_ne_bytes(*word)));
            if flags.is_empty() || !take(first, &flags) {
                break;
            }
            first += flags.len() as u64;
        }
        Ok(())
    }
}

/// Ranges of bytes cut where parts begin, in pages, by part.
fn parts(memory: &[Range<u64>], page_bytes: u64) -> Vec<Part> {
    let mut parts: Vec<(u64, Part)> = Vec::new();
    for range in memory {
        let mut start = range.start.next_multiple_of(page_bytes);
        let end = range.end / page_bytes * page_bytes;
        while start < end {
            let part = start / PART_BYTES;
            let cut = end.min((part + 1).saturating_mul(PART_BYTES));
            let pages = start / page_bytes..cut / page_bytes;
            match parts.last_mut() {
                Some((last, ranges)) if *last == part => ranges.push(pages),
                _ => parts.push((part, vec![pages])),
            }
            start = cut;
        }
    }
    parts.into_iter().map(|(_, ranges)| ranges).collect()
}

/// All addresses, for machines that do not say where their memory is: the file of flags ends at the last page.
const ALL: Range<u64> = 0..1 << 52;

/// Ranges of memory by ascending address, without memory that is offline. Between them 6.18 shows pages without flags.
fn memory(root: &Path) -> Vec<Range<u64>> {
    let map = fs::read_to_string(at(root, "/proc/iomem")).unwrap_or_default();
    let mut ranges = system_ram(&map);
    if ranges.is_empty() {
        ranges.push(ALL);
    }
    let offline = offline(&at(root, "/sys/devices/system/memory"));
    for gone in offline {
        let cut = |range: Range<u64>| {
            let before = range.start..range.end.min(gone.start);
            let behind = range.start.max(gone.end)..range.end;
            [before, behind]
        };
        ranges = ranges
            .into_iter()
            .flat_map(cut)
            .filter(|range| !range.is_empty())
            .collect();
    }
    ranges
}

/// Ranges named `System RAM` in `/proc/iomem`; none if their addresses are hidden.
fn system_ram(map: &str) -> Vec<Range<u64>> {
    let ranges = map.lines().filter_map(|line| {
        let range = line
            .strip_suffix(" : System RAM")
            .filter(|range| !range.starts_with(' '))?;
        let (first, last) = range.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let range = hex(first)?..hex(last)?.checked_add(1)?;
        (range.end > 1).then_some(range)
    });
    ranges.collect()
}

/// Parts of memory that are offline.
fn offline(folder: &Path) -> Vec<Range<u64>> {
    let hex = |path: &Path| {
        let text = fs::read_to_string(path).ok()?;
        u64::from_str_radix(text.trim(), 16).ok()
    };
    let Some(bytes) = hex(&folder.join("block_size_bytes")) else {
        return Vec::new();
    };
    let blocks = fs::read_dir(folder).into_iter().flatten().flatten();
    let offline = blocks.filter_map(|block| {
        let index: u64 = block
            .file_name()
            .to_str()?
            .strip_prefix("memory")?
            .parse()
            .ok()?;
        let state = fs::read_to_string(block.path().join("state")).ok()?;
        let start = index.checked_mul(bytes)?;
        (state.trim() == "offline").then_some(start..start.checked_add(bytes)?)
    });
    offline.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IOMEM: &str = "00000000-00000fff : Reserved\n\
        00001000-0009fbff : System RAM\n\
        00100000-bfffffff : System RAM\n  \
        01000000-02277287 : Kernel code\n\
        100000000-13fffffff : System RAM\n";

    fn put(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
        let path = at(root, path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn parts_are_cut_at_gigabytes_and_hold_whole_pages() {
        let memory = system_ram(IOMEM);
        assert_eq!(
            memory,
            [
                0x1000..0x9_fc00,
                0x10_0000..0xc000_0000,
                0x1_0000_0000..0x1_4000_0000
            ]
        );
        let parts = parts(&memory, 4096);
        let gigabyte = 1 << 18;
        assert_eq!(parts[0], [1..0x9f, 0x100..gigabyte]);
        let rest = [
            gigabyte..2 * gigabyte,
            2 * gigabyte..3 * gigabyte,
            4 * gigabyte..5 * gigabyte,
        ];
        assert_eq!(parts[1..].concat(), rest);
        assert!(system_ram("00000000-00000000 : System RAM\n").is_empty());
    }

    /// A page that is no memory, or offline, is in no block, whatever its flags say.
    #[test]
    fn a_machine_is_read_without_its_holes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(
            root,
            "proc/iomem",
            "00000000-003fffff : System RAM\n00600000-009fffff : System RAM\n",
        );
        put(
            root,
            "sys/devices/system/memory/block_size_bytes",
            "200000\n",
        );
        put(root, "sys/devices/system/memory/memory3/state", "online\n");
        put(root, "sys/devices/system/memory/memory4/state", "offline\n");
        let mut flags = vec![1_u64 << 10; 5 * 512];
        flags[512] = 1 << 7;
        flags[3 * 512] = 0;
        let flags: Vec<u8> = flags.iter().flat_map(|flags| flags.to_ne_bytes()).collect();
        put(root, "proc/kpageflags", flags);
        let map = BlockMap::read(root, 4096).unwrap();
        let blocks: Vec<_> = map
            .blocks
            .iter()
            .map(|it| (it.index, it.pages.counts()))
            .collect();
        let expected = [
            (0, [512, 0, 0, 0, 0, 0, 0]),
            (1, [511, 0, 1, 0, 0, 0, 0]),
            (3, [511, 0, 0, 0, 0, 1, 0]),
        ];
        assert_eq!(blocks, expected);
        assert!(!map.is_free_guessed);
    }

    #[test]
    fn free_blocks_with_one_flag_each_are_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, "proc/iomem", "00000000-001fffff : System RAM\n");
        let mut flags = vec![0_u64; 512];
        (flags[0], flags[256]) = (1 << 10, 1 << 7);
        let flags: Vec<u8> = flags.iter().flat_map(|flags| flags.to_ne_bytes()).collect();
        put(root, "proc/kpageflags", flags);
        let map = BlockMap::read(root, 4096).unwrap();
        assert!(map.is_free_guessed);
        assert_eq!(map.blocks[0].pages.counts(), [256, 0, 1, 0, 0, 255, 0]);
    }

    #[test]
    fn a_kernel_without_flags_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let error = BlockMap::read(dir.path(), 4096).unwrap_err().to_string();
        assert!(error.contains("/proc/kpageflags"), "{error}");
    }

    /// A machine of 1 TiB, whose flags are a file of zeros: the kernel's own time for each page comes on top.
    #[test]
    #[ignore = "reads 2 GiB; cargo test --release -p kquarry-snapshot -- --ignored --nocapture terabyte"]
    fn a_terabyte_is_folded_in_little_memory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, "proc/iomem", "00000000-ffffffffff : System RAM\n");
        put(root, "proc/kpageflags", "");
        let flags = File::options()
            .write(true)
            .open(root.join("proc/kpageflags"));
        flags.unwrap().set_len(2 << 30).unwrap();
        let start = std::time::Instant::now();
        let map = BlockMap::read(root, 4096).unwrap();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM"));
        println!("{:?}, {}", start.elapsed(), peak.unwrap());
        assert_eq!(map.blocks.len(), 1 << 19);
    }
}
