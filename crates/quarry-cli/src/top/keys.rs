//! Keys, and the orders of caches that they choose.

use std::cmp::Ordering;
use std::str::FromStr;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::{Row, State};

/// Order of the caches: by name, or with most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Active,
    PerSlab,
    Size,
    Slabs,
    ActiveSlabs,
    Name,
    Objects,
    Pages,
    ObjectSize,
    Use,
    Held,
    Pinned,
    Other,
    Change,
}

impl Sort {
    /// All orders with their keys: slabtop's, and capital letters for the columns that it does not have.
    const KEYS: [(char, Self); 14] = [
        ('a', Self::Active),
        ('b', Self::PerSlab),
        ('c', Self::Size),
        ('l', Self::Slabs),
        ('v', Self::ActiveSlabs),
        ('n', Self::Name),
        ('o', Self::Objects),
        ('p', Self::Pages),
        ('s', Self::ObjectSize),
        ('u', Self::Use),
        ('H', Self::Held),
        ('P', Self::Pinned),
        ('D', Self::Other),
        ('C', Self::Change),
    ];

    fn of(key: char) -> Option<Self> {
        let found = Self::KEYS.iter().find(|(letter, _)| *letter == key);
        found.map(|(_, sort)| *sort)
    }

    /// Compares two caches. Equal ones are in the order of their names.
    pub(super) fn compare(self, a: &Row, b: &Row) -> Ordering {
        let by = |key: fn(&Row) -> i128| key(b).cmp(&key(a));
        let ordering = match self {
            Self::Active => by(|row| row.active_objs.into()),
            Self::PerSlab => by(|row| row.objs_per_slab.into()),
            Self::Size => by(|row| row.slab_bytes.into()),
            Self::Slabs => by(|row| row.slabs.into()),
            Self::ActiveSlabs => by(|row| row.active_slabs.into()),
            Self::Name => Ordering::Equal,
            Self::Objects => by(|row| row.num_objs.into()),
            Self::Pages => by(|row| row.pages_per_slab.into()),
            Self::ObjectSize => by(|row| row.slab_size.into()),
            Self::Use => by(|row| row.use_percent().into()),
            Self::Held => by(|row| row.held_bytes.into()),
            Self::Pinned => by(|row| row.pinned_bytes.into()),
            Self::Other => by(|row| row.other_bytes.map_or(-1, i128::from)),
            Self::Change => by(|row| row.change),
        };
        ordering.then_with(|| a.name.cmp(&b.name))
    }
}

impl FromStr for Sort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut letters = text.chars();
        let only = (letters.next(), letters.next());
        let found = match only {
            (Some(letter), None) => Self::of(letter),
            _ => None,
        };
        found.ok_or_else(|| {
            let letters: Vec<String> = Self::KEYS.iter().map(|(key, _)| key.to_string()).collect();
            format!("no order has this key; the keys are {}", letters.join(" "))
        })
    }
}

/// Consequence of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The state may have changed, which drawing shows.
    Nothing,
    /// The kernel is read at once.
    Read,
    /// The command ends.
    Quit,
}

impl State {
    /// Takes a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Answer {
        if key.kind == KeyEventKind::Release {
            return Answer::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Answer::Quit,
                _ => Answer::Nothing,
            };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Answer::Nothing;
        }
        let was_help = std::mem::take(&mut self.is_help);
        match key.code {
            KeyCode::Char('q') => return Answer::Quit,
            KeyCode::Char(' ') => return Answer::Read,
            KeyCode::Char('h' | '?') => self.is_help = !was_help,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('d') => self.next_other(),
            KeyCode::Char(letter) => {
                if let Some(sort) = Sort::of(letter) {
                    self.set_sort(sort);
                }
            }
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Up => self.scroll(-1),
            KeyCode::Down => self.scroll(1),
            KeyCode::PageUp => self.scroll_pages(-1),
            KeyCode::PageDown => self.scroll_pages(1),
            KeyCode::Home => self.scroll(isize::MIN),
            KeyCode::End => self.scroll(isize::MAX),
            _ => {}
        }
        Answer::Nothing
    }

    /// Takes a key of the filter's text.
    fn type_filter(&mut self, key: KeyCode) {
        let mut filter = self.filter().to_string();
        match key {
            KeyCode::Char(letter) => filter.push(letter),
            KeyCode::Backspace => {
                filter.pop();
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                filter.clear();
            }
            _ => {}
        }
        self.set_filter(filter);
    }
}
