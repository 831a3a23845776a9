//! A row of `vmstat -m`.

use super::rows::{Cache, slab_bytes_of};

/// `dentry 201942 208530 192 21`: the column `Pages` has the objects of a slab.
pub(crate) fn cache(words: &[&str]) -> Option<Cache> {
    let (name, numbers) = words.split_at_checked(words.len().checked_sub(4)?)?;
    let mut numbers = numbers.iter().map(|word| word.parse::<u64>().ok());
    let mut number = || numbers.next()?;
    let (active_objs, num_objs, objsize, objperslab) = (number()?, number()?, number()?, number()?);
    (!name.is_empty()).then(|| Cache {
        name: name.join(" "),
        active_objs,
        num_objs,
        objsize,
        objperslab,
        slab_bytes: slab_bytes_of(objsize, objperslab),
        num_slabs: num_objs.checked_div(objperslab).unwrap_or(0),
    })
}
