//! Names of tasks and of the kernel's functions.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use super::format::{Field, Format};

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
}

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
        }
    }

    /// An address as `function+0x12`, with its module if it is in one.
    pub(crate) fn name(&mut self, address: u64) -> Option<&[u8]> {
        let functions = &self.functions;
        let text = self.texts.entry(address).or_insert_with(|| {
            let after = functions.partition_point(|(begin, _)| *begin <= address);
            let (begin, name) = functions.get(after.checked_sub(1)?)?;
            let (name, module) = name.split_once('\u{0}')?;
            let text = format!("{name}+{:#x}{module}", address - begin);
            Some(text.into_bytes().into())
        });
        text.as_deref()
    }
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
}
