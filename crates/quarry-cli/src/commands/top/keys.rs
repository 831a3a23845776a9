//! Keys, and what they do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::row::Sort;
use super::state::State;

/// Consequence of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The state may have changed, which drawing shows.
    Nothing,
    /// The kernel is read at once.
    Read,
    /// The same, with a map of the memory, for which a large machine takes seconds.
    Map,
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
            KeyCode::Char('m') => return Answer::Map,
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
