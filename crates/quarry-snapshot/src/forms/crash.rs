//! A row of `kmem -s` of crash; `kmem -S` has the same above the slabs of a cache.

use super::rows::{Cache, bytes_of, slot_of};

/// True for an address, as crash prints it.
pub(crate) fn is_address(word: &str) -> bool {
    word.len() >= 8 && word.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `ffff88017fc07600      192      20212     21000   1000     4k  dentry`.
pub(crate) fn cache(line: &str) -> Option<Cache> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (address, rest) = words.split_first()?;
    is_address(address).then_some(())?;
    let numbers_first = rest.first()?.bytes().all(|b| b.is_ascii_digit()) && rest.len() >= 6;
    let (name, numbers) = match numbers_first {
        true => (rest.get(5..)?.join(" "), rest.get(..5)?),
        false => (rest.first()?.to_string(), rest.get(1..6)?),
    };
    let number = |index: usize| numbers.get(index)?.parse::<u64>().ok();
    let (objsize, active_objs) = (number(0)?, number(1)?);
    let (num_objs, num_slabs) = (number(2)?, number(3)?);
    let slab_bytes = bytes_of(numbers.get(4)?)?;
    let aligned = objsize.checked_next_multiple_of(8)?;
    let objperslab = match num_objs.checked_div(num_slabs) {
        Some(objects) if num_objs.is_multiple_of(num_slabs) => objects,
        // Slabs of lower orders are among them.
        _ => slab_bytes.checked_div(aligned).unwrap_or(0),
    };
    let objsize = slot_of(objsize, 8, objperslab, slab_bytes);
    Some(Cache {
        name,
        active_objs,
        num_objs,
        objsize,
        objperslab,
        slab_bytes,
        num_slabs,
    })
}
