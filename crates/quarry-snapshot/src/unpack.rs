//! Containers of reports: packed files and archives, recognised by their first bytes. Nothing is written to disk.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Component, Path};

use quarry_trace::Packing;

use crate::file::ReportError;

/// Limits of what is unpacked: a small archive can hold any amount of zeros. Memory stays below twice `kept_bytes`, for a
/// zip and its texts, and what [`Packing::unpack`] allows the windows of xz and zstd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Containers in each other that are opened, such as a tar in xz.
    pub(crate) layers: u32,
    /// Bytes that a packed file or an archive may unpack to.
    pub(crate) unpacked_bytes: u64,
    /// Bytes of texts, names and links that are kept, and of a zip.
    pub(crate) kept_bytes: u64,
    /// Files and folders in an archive.
    pub(crate) entries: u64,
    /// Bytes of the headers of one file in a tar, with its long name and attributes.
    pub(crate) header_bytes: u64,
}

/// Limits for files of users.
pub(crate) const LIMITS: Limits = Limits {
    layers: 3,
    unpacked_bytes: 16 << 30,
    kept_bytes: 256 << 20,
    entries: 1_000_000,
    header_bytes: 1 << 20,
};

/// First bytes that name a container.
const HEAD_BYTES: usize = 512;

/// Contents of a file, unpacked.
#[derive(Debug)]
pub(crate) enum Content {
    Text(String),
    /// An archive.
    Files(Files),
}

/// Texts and links of an archive, by path; those that [`wanted`](Unpacker::wanted) names.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) texts: BTreeMap<String, String>,
    pub(crate) links: BTreeMap<String, String>,
}

/// Reads a file; `wanted` chooses the files of an archive.
pub(crate) fn open(path: &Path, wanted: fn(&str) -> bool) -> Result<Content, ReportError> {
    let file = path.display().to_string();
    let opened = File::open(path).map_err(|source| ReportError::Read {
        file: file.clone(),
        source,
    })?;
    from_reader(&file, opened, wanted, LIMITS)
}

/// Reads what a reader has, as [`open`] does; `file` is for messages.
pub(crate) fn from_reader(
    file: &str,
    reader: impl Read,
    wanted: fn(&str) -> bool,
    limits: Limits,
) -> Result<Content, ReportError> {
    let unpacker = Unpacker {
        file,
        wanted,
        limits,
    };
    unpacker.read(Box::new(reader), 0)
}

struct Unpacker<'a> {
    file: &'a str,
    wanted: fn(&str) -> bool,
    limits: Limits,
}

type Bytes<'a> = Box<dyn Read + 'a>;

impl Unpacker<'_> {
    fn bad(&self, what: impl std::fmt::Display) -> ReportError {
        ReportError::bad(self.file, "archive", what)
    }

    fn read_error(&self, source: io::Error) -> ReportError {
        ReportError::Read {
            file: self.file.to_string(),
            source,
        }
    }

    fn read(&self, reader: Bytes<'_>, layer: u32) -> Result<Content, ReportError> {
        let mut reader = reader;
        let mut head = vec![0; HEAD_BYTES];
        let mut filled = 0;
        while filled < head.len() {
            match reader.read(&mut head[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.read_error(error)),
            }
        }
        head.truncate(filled);
        let kind = Container::of(&head);
        let whole = BufReader::new(Cursor::new(head).chain(reader));
        let layers = self.limits.layers;
        if layer >= layers && !matches!(kind, Container::Text) {
            return Err(self.bad(format!("archives are nested more than {layers} deep")));
        }
        match kind {
            Container::Packed(packing) => {
                let unpacked = packing.unpack(whole, self.limits.unpacked_bytes);
                self.read(unpacked.map_err(|error| self.read_error(error))?, layer + 1)
            }
            Container::Tar => Ok(Content::Files(self.tar(whole)?)),
            Container::Zip => Ok(Content::Files(self.zip(whole)?)),
            Container::Unread(what) => Err(ReportError::bad(self.file, "first bytes", what)),
            Container::Text => {
                let mut bytes = Vec::new();
                let limit = self.limits.kept_bytes;
                let read = whole.take(limit + 1).read_to_end(&mut bytes);
                read.map_err(|error| self.read_error(error))?;
                if bytes.len() as u64 > limit {
                    return Err(ReportError::bad(
                        self.file,
                        "text",
                        format!("it has more than {limit} bytes, the limit of a text"),
                    ));
                }
                Ok(Content::Text(self.text(bytes)?))
            }
        }
    }

    /// The text of bytes, which Windows may have written in 16 bits. Logs and bug reports have stray bytes; a file that is no text has zeros.
    fn text(&self, bytes: Vec<u8>) -> Result<String, ReportError> {
        if let Some(text) = utf16(&bytes) {
            return Ok(text);
        }
        if bytes.contains(&0) {
            let zeros = bytes.iter().filter(|byte| **byte == 0).count();
            let what = match () {
                () if zeros == bytes.len() => "it has zeros alone: copy it again",
                // Every other byte of UTF-16 is zero.
                () if zeros * 3 > bytes.len() && zeros * 3 < bytes.len() * 2 => {
                    "it is not a text: it has bytes of zero (UTF-16 needs its mark FF FE at the begin: save it as UTF-8)"
                }
                () => {
                    "it is not a text, but binary, and none of the containers that are read (gz, xz, zst, tar, zip)"
                }
            };
            let source = io::Error::new(io::ErrorKind::InvalidData, what);
            return Err(self.read_error(source));
        }
        Ok(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    fn tar(&self, reader: impl Read) -> Result<Files, ReportError> {
        let mut kept = Kept::new(self);
        let limit = self.limits.header_bytes;
        let left = Cell::new(limit);
        let mut archive = tar::Archive::new(Headers {
            reader,
            limit,
            left: &left,
        });
        let entries = archive.entries().map_err(|error| self.read_error(error))?;
        for entry in entries {
            let mut entry = entry.map_err(|error| self.read_error(error))?;
            kept.count()?;
            // The next header follows what is not read of this file.
            let unread = match entry.header().entry_type() {
                tar::EntryType::GNUSparse => entry.header().entry_size(),
                _ => Ok(entry.size()),
            };
            let unread = unread.map_err(|error| self.read_error(error))?;
            left.set(unread.saturating_add(limit));
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let Some(path) = inside(&path).filter(|path| (self.wanted)(path)) else {
                continue;
            };
            match entry.header().entry_type() {
                tar::EntryType::Regular => kept.add(path, &mut entry)?,
                tar::EntryType::Symlink => {
                    if let Some(target) = entry.link_name_bytes() {
                        let target = String::from_utf8_lossy(&target).into_owned();
                        kept.charge(&path, path.len() + target.len())?;
                        kept.files.links.insert(path, target);
                    }
                }
                _ => {}
            }
        }
        Ok(kept.files)
    }

    fn too_many(&self) -> ReportError {
        let limit = self.limits.entries;
        self.bad(format!(
            "more than {limit} entries, the limit of an archive"
        ))
    }

    fn zip(&self, reader: impl Read) -> Result<Files, ReportError> {
        // The directory of a zip is at its end.
        let mut bytes = Vec::new();
        let limit = self.limits.kept_bytes;
        let read = reader.take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.read_error(error))?;
        if bytes.len() as u64 > limit {
            return Err(self.bad(format!("a zip of more than {limit} bytes: unpack it first")));
        }
        // The crate reads the whole directory at once, which takes several times its bytes.
        let entries = bytes.windows(4).filter(|bytes| *bytes == b"PK\x01\x02");
        if entries.count() as u64 > self.limits.entries {
            return Err(self.too_many());
        }
        let mut kept = Kept::new(self);
        let has = |name: &[u8]| bytes.windows(name.len()).any(|part| part == name);
        let documents: [(&[u8], &str); 4] = [
            (
                b"word/document.xml",
                "a Word document: copy its text into a file",
            ),
            (
                b"xl/workbook.xml",
                "an Excel workbook: save the sheet as CSV",
            ),
            (
                b"ppt/presentation.xml",
                "a PowerPoint file: copy its text into a file",
            ),
            (
                b"application/vnd.oasis",
                "a document of LibreOffice: save it as text",
            ),
        ];
        if let Some((_, what)) = documents.iter().find(|(name, _)| has(name)) {
            return Err(ReportError::bad(self.file, "first bytes", what));
        }
        let bad = |error: zip::result::ZipError| self.bad(error);
        let archive = zip::ZipArchive::new(Cursor::new(bytes));
        let mut archive = archive.map_err(|error| {
            self.bad(format!(
                "a zip, or a document of an office program, that is cut or damaged: copy it again, or save its text as a file ({error})"
            ))
        })?;
        for index in 0..archive.len() {
            kept.count()?;
            let mut entry = archive.by_index(index).map_err(bad)?;
            let name = entry.name().map_err(bad)?.into_owned();
            let path = inside(&name).filter(|path| (self.wanted)(path));
            if let Some(path) = path.filter(|_| entry.is_file()) {
                kept.add(path, &mut entry)?;
            }
        }
        Ok(kept.files)
    }
}

/// The text of bytes that begin with the mark of UTF-16.
fn utf16(bytes: &[u8]) -> Option<String> {
    let word: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let words = bytes[2..]
        .chunks_exact(2)
        .map(|pair| word([pair[0], pair[1]]));
    let text = char::decode_utf16(words).map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER));
    Some(text.collect())
}

/// A tar with the bytes that may be read until its next header ends. Its crate reads long names and attributes whole.
struct Headers<'a, R> {
    reader: R,
    limit: u64,
    left: &'a Cell<u64>,
}

impl<R: Read> Read for Headers<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        let Some(left) = self.left.get().checked_sub(read as u64) else {
            let limit = self.limit;
            return Err(io::Error::other(format!(
                "the header of a file in it exceeds {limit} bytes"
            )));
        };
        self.left.set(left);
        Ok(read)
    }
}

/// Files kept so far.
struct Kept<'a> {
    unpacker: &'a Unpacker<'a>,
    files: Files,
    entries: u64,
    bytes: u64,
}

impl<'a> Kept<'a> {
    fn new(unpacker: &'a Unpacker<'a>) -> Self {
        Self {
            unpacker,
            files: Files::default(),
            entries: 0,
            bytes: 0,
        }
    }

    fn count(&mut self) -> Result<(), ReportError> {
        self.entries += 1;
        match self.entries > self.unpacker.limits.entries {
            true => Err(self.unpacker.too_many()),
            false => Ok(()),
        }
    }

    /// Counts bytes that are kept of a file.
    fn charge(&mut self, path: &str, bytes: usize) -> Result<(), ReportError> {
        self.bytes += bytes as u64;
        let limit = self.unpacker.limits.kept_bytes;
        match self.bytes > limit {
            true => Err(self.unpacker.bad(format!(
                "{path}: the archive's reports exceed {limit} bytes"
            ))),
            false => Ok(()),
        }
    }

    fn add(&mut self, path: String, reader: &mut impl Read) -> Result<(), ReportError> {
        self.charge(&path, path.len())?;
        let unpacker = self.unpacker;
        let mut bytes = Vec::new();
        let left = unpacker.limits.kept_bytes - self.bytes;
        let read = reader.take(left + 1).read_to_end(&mut bytes);
        read.map_err(|error| unpacker.read_error(error))?;
        self.charge(&path, bytes.len())?;
        if let Ok(text) = unpacker.text(bytes) {
            self.files.texts.insert(path, text);
        }
        Ok(())
    }
}

/// A path inside of the archive without `./`; `None` if it leaves it.
fn inside(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Kinds of files by their first bytes.
enum Container {
    Packed(Packing),
    Tar,
    Zip,
    /// One that is not read, with what to do.
    Unread(&'static str),
    Text,
}

const PICTURE: &str =
    "a picture, perhaps a screenshot: type its rows, or give what `sudo cat /proc/slabinfo` prints";

/// Files that people have and that are not read: first bytes, and what to do.
const UNREAD: [(&[u8], &str); 15] = [
    (
        b"\x17\x08\x44tracing",
        "a trace.dat of trace-cmd: `quarry import FILE` makes a trace of it",
    ),
    (
        b"%PDF",
        "a PDF: give what `pdftotext FILE -` prints, or copy its text into a file",
    ),
    (b"\x89PNG", PICTURE),
    (b"\xff\xd8\xff", PICTURE),
    (b"GIF8", PICTURE),
    (b"RIFF", PICTURE),
    (
        b"\xd0\xcf\x11\xe0",
        "a document of Word, Excel or Outlook: save its text as a file",
    ),
    (b"BZh", "packed with bzip2: unpack it with bunzip2"),
    (b"7z\xbc\xaf", "a 7z archive: unpack it first"),
    (
        b"PERFILE2",
        "a recording of perf: quarry import makes a trace of it",
    ),
    (
        b"KDUMP   ",
        "a memory image of kdump: give what contrib/quarry_snapshot.py of drgn or `kmem -s` of crash prints of it",
    ),
    (
        b"\x7fELF",
        "an ELF file, perhaps a vmcore: give what contrib/quarry_snapshot.py of drgn or `kmem -s` of crash prints of it",
    ),
    (
        b"\x00\x00\x00\x84\x50\x05\x26",
        "an archive of PCP: give what `pmrep -a ARCHIVE -o csv mem.slabinfo` prints",
    ),
    (
        b"\xef\xbe\xed\xfe",
        "a raw file of atop, which has no table of slab caches",
    ),
    (
        b"PAR1",
        "Parquet: a trace, which has no single moment, or a table of pcp2arrow, which is read from a path",
    ),
];

impl Container {
    fn of(head: &[u8]) -> Self {
        if let Some((_, what)) = UNREAD.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Self::Unread(what);
        }
        if let Some(packing) = Packing::of(head) {
            return Self::Packed(packing);
        }
        match head {
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Self::Zip,
            _ if head.get(257..262) == Some(b"ustar") => Self::Tar,
            _ if head.get(4..8) == Some(b"ftyp") => Self::Unread(PICTURE),
            [b'B', b'M', ..] if head.contains(&0) => Self::Unread(PICTURE),
            _ => Self::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SMALL: Limits = Limits {
        layers: 3,
        unpacked_bytes: 1 << 20,
        kept_bytes: 10_000,
        entries: 20,
        header_bytes: 6000,
    };

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, bytes) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            // As an attacker would: the crate itself refuses such paths.
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            archive.append(&header, *bytes).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn open(bytes: Vec<u8>) -> Result<Content, String> {
        from_reader("f", Cursor::new(bytes), |_| true, SMALL).map_err(|error| error.to_string())
    }

    fn text(bytes: Vec<u8>) -> String {
        match open(bytes).unwrap() {
            Content::Text(text) => text,
            Content::Files(files) => panic!("{files:?}"),
        }
    }

    #[test]
    fn packed_texts() {
        assert_eq!(text(b"a".to_vec()), "a");
        assert_eq!(text(gzip(b"a")), "a");
        assert_eq!(text(gzip(&gzip(b"a"))), "a");
        assert_eq!(text(zstd::encode_all(&b"a"[..], 1).unwrap()), "a");
        let four = gzip(&gzip(&gzip(&gzip(b"a"))));
        assert!(open(four).unwrap_err().contains("nested more than 3 deep"));
        assert!(open(b"a\0b".to_vec()).unwrap_err().contains("not a text"));
        assert!(open(b"BZh9".to_vec()).unwrap_err().contains("bunzip2"));
        assert_eq!(text(b"\xff".to_vec()), "\u{fffd}");
    }

    #[test]
    fn bombs_are_refused() {
        let zeros = vec![b'0'; 2 << 20];
        let error = open(gzip(&gzip(&zeros))).unwrap_err();
        assert!(error.contains("limit of"), "{error}");
        let error = open(gzip(&tar(&[("a", &zeros[..9000]), ("b", &zeros[..2000])]))).unwrap_err();
        assert!(
            error.contains("b: the archive's reports exceed 10000 bytes"),
            "{error}"
        );
        let many: Vec<(&str, &[u8])> = (0..30).map(|_| ("a", &b"x"[..])).collect();
        let error = open(tar(&many)).unwrap_err();
        assert!(error.contains("more than 20 entries"), "{error}");
        // An archive whose unwanted files are large.
        let large = gzip(&tar(&[("a", &zeros)]));
        let error = from_reader("f", Cursor::new(large), |_| false, SMALL).unwrap_err();
        assert!(
            error.to_string().contains("more than 1048576 bytes"),
            "{error}"
        );
    }

    #[test]
    fn headers_of_a_tar_are_bounded() {
        let of = |length: usize, attribute: usize| {
            let mut archive = tar::Builder::new(Vec::new());
            let mut add = |path: &str| {
                let mut header = tar::Header::new_gnu();
                header.set_size(6000);
                archive.append_data(&mut header, path, &[b'x'; 6000][..])
            };
            // Each header has the whole limit, however much of the file before it is read.
            add("unwanted").unwrap();
            add(&"n".repeat(length)).unwrap();
            let attribute = b"a".repeat(attribute);
            let attributes = [("SCHILY.xattr.user.a", attribute.as_slice())];
            archive.append_pax_extensions(attributes).unwrap();
            let mut link = tar::Header::new_gnu();
            link.set_entry_type(tar::EntryType::Symlink);
            link.set_size(0);
            archive
                .append_link(&mut link, "a", "l".repeat(length))
                .unwrap();
            let bytes = Cursor::new(archive.into_inner().unwrap());
            let found = from_reader("f", bytes, |path| path != "unwanted", SMALL);
            found.map_err(|error| error.to_string())
        };
        let Ok(Content::Files(files)) = of(500, 500) else {
            panic!("a text");
        };
        assert_eq!((files.texts.len(), files.links["a"].len()), (1, 500));
        for (length, attribute) in [(5000, 1), (1, 5000), (2500, 2500)] {
            let error = of(length, attribute).unwrap_err();
            assert!(error.contains("exceeds 6000 bytes"), "{error}");
        }
        // Names and links are kept, too.
        let error = of(2500, 1).unwrap_err();
        assert!(error.contains("reports exceed 10000"), "{error}");
    }

    #[test]
    fn no_path_leaves_the_archive() {
        let evil = tar(&[
            ("../a", b"x"),
            ("/etc/b", b"x"),
            ("./c/../d", b"x"),
            ("./e", b"y"),
        ]);
        let Content::Files(files) = open(evil).unwrap() else {
            panic!("a text");
        };
        assert_eq!(
            files.texts.into_iter().collect::<Vec<_>>(),
            [("e".into(), "y".into())]
        );
    }

    #[test]
    fn zips() {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file("d/a.txt", options).unwrap();
        zip.write_all(b"hello").unwrap();
        let bytes = zip.finish().unwrap().into_inner();
        let Content::Files(files) = open(bytes.clone()).unwrap() else {
            panic!("a text");
        };
        assert_eq!(files.texts["d/a.txt"], "hello");
        assert!(open(bytes[..bytes.len() - 8].to_vec()).is_err());
    }
}
