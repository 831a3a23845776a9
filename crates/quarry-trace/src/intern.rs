//! Strings once: text to small number and back.

use std::collections::HashMap;

/// Stands for "no string".
pub(crate) const NO_TEXT: u32 = u32::MAX;

/// A table of distinct byte strings, each with the number of times that it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    ids: HashMap<Box<[u8]>, u32>,
    texts: Vec<Box<[u8]>>,
    uses: Vec<u64>,
    last: Option<u32>,
}

impl Interner {
    /// The number of `text`, a new one if it was never seen. The last text is found without hashing.
    pub(crate) fn id(&mut self, text: &[u8]) -> u32 {
        self.add(text, 1)
    }

    /// The number of `text`, which is used this often.
    pub(crate) fn add(&mut self, text: &[u8], uses: u64) -> u32 {
        let id = match self.last {
            Some(last) if *self.texts[last as usize] == *text => last,
            _ => self.lookup(text),
        };
        self.last = Some(id);
        self.uses[id as usize] += uses;
        id
    }

    fn lookup(&mut self, text: &[u8]) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = u32::try_from(self.texts.len())
            .expect("fewer than 2^32 distinct strings fit in memory");
        self.ids.insert(text.into(), id);
        self.texts.push(text.into());
        self.uses.push(0);
        id
    }

    pub(crate) fn text(&self, id: u32) -> &[u8] {
        &self.texts[id as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Every text with its uses, most used first, ties in the order of first use.
    pub(crate) fn by_use(&self) -> Vec<(String, u64)> {
        let mut order: Vec<usize> = (0..self.texts.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(self.uses[*i]));
        order
            .into_iter()
            .map(|i| {
                (
                    String::from_utf8_lossy(&self.texts[i]).into_owned(),
                    self.uses[i],
                )
            })
            .collect()
    }
}
