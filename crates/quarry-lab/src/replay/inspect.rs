//! The files of a replay's heap, as the kernel would show them: `slabinfo`, `buddyinfo`,
//! `pagetypeinfo`, `zoneinfo`, `vmstat` and `sys/vm/<sysctl>` of `/proc`, and
//! `slab/<cache>/<attribute>` of `/sys/kernel`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use quarry_core::design::Design;
use quarry_core::inspect::{PageFile, PageFileError, SlabinfoError, SysfsError};
use quarry_sim::driver::{CacheView, Driver};
use quarry_trace::{Existing, OutFolder};

use crate::error::LabError;

/// Writes all files of a heap into a folder, which appears when it is complete. One that is to be kept was refused
/// before the replay.
pub(super) fn write<D: Design>(folder: &Path, driver: &Driver<'_, D>) -> Result<(), LabError> {
    let out = OutFolder::create(folder, Existing::Replace)?;
    write_files(out.path(), driver)?;
    Ok(out.commit()?)
}

fn write_files<D: Design>(folder: &Path, driver: &Driver<'_, D>) -> Result<(), LabError> {
    write_pages(folder, driver)?;
    let mut text = String::new();
    match driver.write_slabinfo(&mut text) {
        Ok(()) => put(&folder.join("slabinfo"), &text)?,
        // Nothing is what a kernel with this design shows.
        Err(SlabinfoError::NoFile { .. }) => (),
        Err(error) => {
            return Err(failed(
                &folder.join("slabinfo"),
                io::Error::other(error.to_string()),
            ));
        }
    }
    let (mut names, mut result) = (BTreeSet::new(), Ok(()));
    driver.sysfs_caches(|cache| {
        if result.is_ok() {
            let name = unused(file_name(cache.head().name()), &mut names);
            result = write_cache(&folder.join("slab").join(name), &cache);
        }
    });
    result
}

/// Writes what is known of the page allocator.
fn write_pages<D: Design>(folder: &Path, driver: &Driver<'_, D>) -> Result<(), LabError> {
    for file in PageFile::ALL {
        let (path, mut text) = (folder.join(file.name()), String::new());
        match driver.write_page_file(file, &mut text) {
            Ok(()) => put(&path, &text)?,
            // Nothing is what a kernel of this era shows.
            Err(PageFileError::NoFile { .. }) => (),
            Err(error) => return Err(failed(&path, io::Error::other(error.to_string()))),
        }
    }
    let sysctls = folder.join("sys").join("vm");
    fs::create_dir_all(&sysctls).map_err(|source| failed(&sysctls, source))?;
    for (name, value) in driver.sysctls() {
        put(&sysctls.join(name), &format!("{value}\n"))?;
    }
    Ok(())
}

fn write_cache<D: Design>(folder: &Path, cache: &CacheView<'_, D>) -> Result<(), LabError> {
    fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    for attribute in cache.sysfs_attributes() {
        let path = folder.join(attribute.name);
        let mut text = String::new();
        match cache.sysfs_read(attribute.name, &mut text) {
            Ok(()) => put(&path, &text)?,
            // A file that has nothing to say is left out.
            Err(SysfsError::NotTracked { .. }) => (),
            Err(error) => return Err(failed(&path, io::Error::other(error.to_string()))),
        }
    }
    Ok(())
}

fn put(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: io::Error) -> LabError {
    LabError::Inspect {
        path: path.to_path_buf(),
        source,
    }
}

/// A cache's name as sysfs shows it, with `!` for `/`. A name comes from a trace, so it must not
/// lead out of the folder.
fn file_name(cache: &str) -> String {
    let name = cache.replace(['/', '\0'], "!");
    match name.as_str() {
        "" => "!".to_string(),
        "." | ".." => name.replace('.', "!"),
        _ => name,
    }
}

/// The name, or with `~2`, `~3` and so on behind it if a newer cache has taken it.
fn unused(name: String, taken: &mut BTreeSet<String>) -> String {
    let with_numbers = (2..).map(|number| format!("{name}~{number}"));
    let free = std::iter::once(name.clone())
        .chain(with_numbers)
        .find(|name| !taken.contains(name))
        .unwrap_or(name);
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_folder() {
        for (cache, file) in [
            ("dentry", "dentry"),
            ("kmalloc-64", "kmalloc-64"),
            ("../../etc/passwd", "..!..!etc!passwd"),
            ("..", "!!"),
            (".", "!"),
            ("", "!"),
            ("a\0b", "a!b"),
        ] {
            assert_eq!(file_name(cache), file, "{cache:?}");
        }
    }

    #[test]
    fn names_differ() {
        let mut taken = BTreeSet::new();
        let mut next = || unused("a".to_string(), &mut taken);
        assert_eq!([next(), next(), next()], ["a", "a~2", "a~3"]);
    }
}
