//! Names of tasks and of the kernel's functions.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use super::format::{Field, Format};
use super::stacks::addresses;

/// Name of a task whose name is unknown, as ftrace prints it.
const UNKNOWN: &[u8] = b"<...>";

/// Names of tasks: those that run when a recording begins, and what the tracepoints `task_newtask` and
/// `task_rename` tell.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    names: HashMap<i32, Box<[u8]>>,
    /// By tracepoint id: where the thread and its name are.
    fields: Vec<(u16, Field, Range<usize>)>,
}

impl Tasks {
    /// Adds a tracepoint whose field `comm` names the thread `pid`; false if it has no such fields.
    pub(crate) fn add(&mut self, format: &Format, comm: &str) -> bool {
        let (Some(pid), Some(comm)) = (format.field("pid"), format.field(comm)) else {
            return false;
        };
        if comm.located || pid.size != 4 {
            return false;
        }
        let place = comm.offset..comm.offset.saturating_add(comm.size);
        self.fields.push((format.id, pid.clone(), place));
        true
    }

    /// Reads the names of all threads.
    pub(crate) fn read_running(&mut self) {
        self.names.insert(0, Box::from(&b"swapper"[..]));
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let is_process = |name: &std::ffi::OsStr| {
                let mut bytes = name.as_encoded_bytes().iter();
                bytes.all(u8::is_ascii_digit)
            };
            if !is_process(&process.file_name()) {
                continue;
            }
            let threads = fs::read_dir(process.path().join("task"));
            for thread in threads.into_iter().flatten().flatten() {
                let pid = thread
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse().ok());
                // A thread that has just ended has no name.
                if let (Some(pid), Ok(name)) = (pid, fs::read(thread.path().join("comm"))) {
                    self.names.insert(pid, name.trim_ascii_end().into());
                }
            }
        }
    }

    /// Names a thread.
    pub(crate) fn insert(&mut self, pid: i32, name: &[u8]) {
        self.names.insert(pid, name.into());
    }

    /// Takes a sample that names a task; false if it is another.
    pub(crate) fn take(&mut self, sample: &[u8]) -> bool {
        let id = sample.get(..2).and_then(|id| id.try_into().ok());
        let id = id.map(u16::from_ne_bytes);
        let Some((_, pid, comm)) = self.fields.iter().find(|(of, ..)| Some(*of) == id) else {
            return false;
        };
        let pid = sample.get(pid.offset..pid.offset.saturating_add(4));
        let pid = pid.and_then(|pid| pid.try_into().ok());
        if let (Some(pid), Some(comm)) = (pid, sample.get(comm.clone())) {
            let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
            self.names.insert(i32::from_ne_bytes(pid), name.into());
        }
        true
    }

    /// The name of a thread.
    pub(crate) fn name(&self, pid: i32) -> &[u8] {
        self.names.get(&pid).map_or(UNKNOWN, |name| name)
    }
}

/// Functions of the kernel, by address.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// Sorted by address.
    functions: Vec<(u64, Box<str>)>,
    /// Addresses in words, as `%pS` prints them: few addresses call an allocator.
    texts: HashMap<u64, Option<Box<[u8]>>>,
    /// Stacks in words, by the bytes of their addresses: few paths lead to an allocator.
    stacks: HashMap<Box<[u8]>, Box<[u8]>>,
}

/// Beginnings of the names of functions that write an event, which its stack begins with; the second calls several, where
/// others record the event, too.
const OF_TRACING: [&str; 2] = ["trace_event_raw_event_", "__traceiter_"];

impl Symbols {
    /// Reads `/proc/kallsyms`. A kernel that hides addresses gives none, and call sites then have no name.
    pub(crate) fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Parses the text of that file.
    pub(crate) fn parse(text: &str) -> Self {
        let mut functions: Vec<(u64, Box<str>)> = Vec::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (address, kind, name) = (words.next(), words.next(), words.next());
            let (Some(address), Some("t" | "T" | "w" | "W"), Some(name)) = (address, kind, name)
            else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap_or(0);
            if address != 0 {
                let module = words
                    .next()
                    .map(|module| format!(" {module}"))
                    .unwrap_or_default();
                functions.push((address, format!("{name}\u{0}{module}").into()));
            }
        }
        functions.sort_by_key(|(address, _)| *address);
        Self {
            functions,
            texts: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    /// An address as `function+0x12`, with its module if it is in one.
    pub(crate) fn name(&mut self, address: u64) -> Option<&[u8]> {
        self.caller(Some(address), None).0
    }

    /// A call site as [`Self::name`] has it; and the functions on a stack, the outermost first, with semicolons
    /// between, an address in none in hexadecimal. `stack` has the bytes of its addresses, the innermost first.
    pub(crate) fn caller(
        &mut self,
        site: Option<u64>,
        stack: Option<&[u8]>,
    ) -> (Option<&[u8]>, Option<&[u8]>) {
        let functions = &self.functions;
        let site = site.and_then(|address| {
            let text = self.texts.entry(address).or_insert_with(|| {
                let (begin, name) = function(functions, address)?;
                let (name, module) = name.split_once('\u{0}')?;
                let text = format!("{name}+{:#x}{module}", address - begin);
                Some(text.into_bytes().into())
            });
            text.as_deref()
        });
        if let Some(stack) = stack.filter(|stack| !self.stacks.contains_key(*stack)) {
            let text = fold(functions, stack).into_bytes();
            self.stacks.insert(stack.into(), text.into());
        }
        let stack = stack.and_then(|stack| self.stacks.get(stack));
        let stack = stack.filter(|text| !text.is_empty());
        (site, stack.map(|text| &**text))
    }
}

/// The function that an address is in, and where it begins.
fn function(functions: &[(u64, Box<str>)], address: u64) -> Option<&(u64, Box<str>)> {
    let after = functions.partition_point(|(begin, _)| *begin <= address);
    functions.get(after.checked_sub(1)?)
}

fn fold(functions: &[(u64, Box<str>)], stack: &[u8]) -> String {
    let names = addresses(stack).map(|address| {
        // An address is behind its call, and a call that does not return may end its function.
        let name = function(functions, address.saturating_sub(1));
        let name = name.and_then(|(_, name)| name.split('\u{0}').next());
        name.map_or_else(|| format!("{address:#x}"), |name| name.replace(';', ":"))
    });
    let names: Vec<String> = names.collect();
    let is_of_tracing = |name: &String| OF_TRACING.iter().any(|start| name.starts_with(start));
    let of_tracing = names.iter().rposition(is_of_tracing);
    let mut names = names
        .into_iter()
        .skip(of_tracing.map_or(0, |at| at + 1))
        .rev();
    let outermost = names.next().unwrap_or_default();
    names.fold(outermost, |folded, name| folded + ";" + &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_their_last_name() {
        let format = Format::parse(
            "name: task_rename\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\n\
             \tfield:pid_t pid;\toffset:8;\tsize:4;\n\tfield:char newcomm[16];\toffset:12;\tsize:16;\n",
        );
        let format = format.unwrap();
        let mut tasks = Tasks::default();
        assert!(tasks.add(&format, "newcomm"));
        assert!(!tasks.add(&format, "comm"));
        let mut sample = [0_u8; 28];
        sample[0] = 7;
        sample[8] = 42;
        sample[12..16].copy_from_slice(b"make");
        assert!(tasks.take(&sample));
        assert!(tasks.take(&sample[..20]), "a cut sample names nothing");
        assert_eq!((tasks.name(42), tasks.name(43)), (&b"make"[..], UNKNOWN));
        sample[0] = 8;
        assert!(!tasks.take(&sample));
    }

    #[test]
    fn addresses_are_in_functions() {
        let mut symbols = Symbols::parse(
            "ffffffff81000100 T alloc_skb\nffffffff81000000 t start\nffffffff81000180 d data\n\
             ffffffffc0000000 t probe\t[e1000]\n",
        );
        let mut name = |address| {
            symbols
                .name(address)
                .map(|name| String::from_utf8_lossy(name).into_owned())
        };
        assert_eq!(
            name(0xffff_ffff_8100_0110).as_deref(),
            Some("alloc_skb+0x10")
        );
        assert_eq!(name(0xffff_ffff_8100_00ff).as_deref(), Some("start+0xff"));
        assert_eq!(
            name(0xffff_ffff_c000_0001).as_deref(),
            Some("probe+0x1 [e1000]")
        );
        assert_eq!(name(1), None);
        assert_eq!(Symbols::parse("0000000000000000 T hidden").name(5), None);
    }

    #[test]
    fn a_stack_begins_with_its_outermost_function() {
        let mut symbols = Symbols::parse(
            "ffffffff81000000 T entry_SYSCALL_64_after_hwframe\nffffffff81000100 T do_exit\n\
             ffffffff81000200 T kmem_cache_alloc_noprof\nffffffff81000300 t trace_event_raw_event_kmem_cache_alloc\n\
             ffffffff81000400 T __traceiter_kmem_cache_alloc\n",
        );
        let mut fold = |stack: &[u64]| {
            let bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let (_, text) = symbols.caller(None, Some(&bytes));
            text.map(|text| String::from_utf8_lossy(text).into_owned())
        };
        let [tracing, alloc, entry] = [0x310, 0x210, 0x10].map(|at| 0xffff_ffff_8100_0000 + at);
        // The call of do_exit is its function's last instruction.
        let behind = 0xffff_ffff_8100_0200;
        let expected = "entry_SYSCALL_64_after_hwframe;do_exit;kmem_cache_alloc_noprof";
        for _ in 0..2 {
            assert_eq!(
                fold(&[tracing, alloc, behind, entry]).as_deref(),
                Some(expected)
            );
        }
        // Another recorder has the event, too.
        let several = tracing + 0x100;
        assert_eq!(
            fold(&[tracing, several, alloc, behind, entry]).as_deref(),
            Some(expected)
        );
        let unknown = fold(&[alloc, 0x7fff]);
        assert_eq!(unknown.as_deref(), Some("0x7fff;kmem_cache_alloc_noprof"));
        assert_eq!(fold(&[]), None);
    }
}
