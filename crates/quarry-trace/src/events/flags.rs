//! Names of flags, from the `__print_flags` table in a format's `print fmt`.
//!
//! The kernel writes the bits as C expressions, such as
//! `( unsigned long)((((( gfp_t)((((1UL))) << (6))) | ...`, in the order in which it prints the names: a
//! flag's name is printed if all of its bits are left, and takes them.

/// Bits with their names, in printing order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names(Vec<(u64, String)>);

impl Names {
    /// The first `__print_flags` table of a `print fmt`; empty if it has none. Entries that are no
    /// constant expression are left out.
    pub(super) fn parse(print: &str) -> Self {
        let Some((_, table)) = print.split_once("__print_flags(") else {
            return Self::default();
        };
        let mut names = Vec::new();
        for entry in table.split('{').skip(1) {
            let Some((body, _)) = entry.split_once('}') else {
                break;
            };
            let Some((bits, name)) = body.rsplit_once(',') else {
                continue;
            };
            let name = name.trim().trim_matches('"');
            let bits = Expression::evaluate(bits).filter(|bits| *bits != 0);
            if let Some(bits) = bits {
                names.push((bits, name.to_string()));
            }
        }
        Self(names)
    }

    /// The flags as the kernel prints them: names, and what is left in hexadecimal.
    pub(super) fn text(&self, mut flags: u64) -> String {
        if flags == 0 {
            return "none".to_string();
        }
        let mut parts: Vec<String> = Vec::new();
        for (bits, name) in &self.0 {
            if flags & bits == *bits {
                parts.push(name.clone());
                flags &= !bits;
            }
        }
        if flags != 0 {
            parts.push(format!("{flags:#x}"));
        }
        parts.join("|")
    }
}

/// Deepest nesting of parentheses that is followed.
const DEPTH_MAX: u32 = 64;

/// A constant expression of C: numbers, `|`, `&`, `<<`, `~`, parentheses; casts are passed over.
struct Expression<'a> {
    rest: &'a str,
    depth: u32,
}

impl<'a> Expression<'a> {
    fn evaluate(text: &'a str) -> Option<u64> {
        let mut expression = Expression {
            rest: text,
            depth: 0,
        };
        let value = expression.or()?;
        expression.rest.trim().is_empty().then_some(value)
    }

    fn takes(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn or(&mut self) -> Option<u64> {
        let mut value = self.and()?;
        while self.takes("|") {
            value |= self.and()?;
        }
        Some(value)
    }

    fn and(&mut self) -> Option<u64> {
        let mut value = self.shift()?;
        while self.takes("&") {
            value &= self.shift()?;
        }
        Some(value)
    }

    fn shift(&mut self) -> Option<u64> {
        let mut value = self.unary()?;
        while self.takes("<<") {
            let by = u32::try_from(self.unary()?).ok()?;
            value = value.checked_shl(by)?;
        }
        Some(value)
    }

    fn unary(&mut self) -> Option<u64> {
        if self.takes("~") {
            return self.unary().map(|value| !value);
        }
        if !self.takes("(") {
            return self.number();
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let is_cast = self
            .rest
            .trim_start()
            .starts_with(|c: char| c.is_alphabetic());
        let value = if is_cast {
            let (_, rest) = self.rest.split_once(')')?;
            self.rest = rest;
            self.unary()
        } else {
            let value = self.or()?;
            self.takes(")").then_some(value)
        };
        self.depth -= 1;
        value
    }

    fn number(&mut self) -> Option<u64> {
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric());
        let (token, rest) = text.split_at(end.unwrap_or(text.len()));
        self.rest = rest;
        let digits = token.trim_end_matches(['u', 'U', 'l', 'L']);
        match digits.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => digits.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_c() {
        for (text, value) in [
            ("0x20u", Some(0x20)),
            ("( gfp_t)((((1UL))) << (10))", Some(1 << 10)),
            ("(( unsigned long)((1UL) << (2))|((1UL) << (3)))", Some(12)),
            ("(( gfp_t)(15)) & ~(( gfp_t)(4))", Some(11)),
            ("1UL << 64", None),
            ("name", None),
            ("(1", None),
        ] {
            assert_eq!(Expression::evaluate(text), value, "{text}");
        }
        assert_eq!(Expression::evaluate(&"(".repeat(100_000)), None);
    }

    #[test]
    fn names_take_their_bits_in_order() {
        let names = Names::parse(
            r#""gfp_flags=%s", (REC->gfp_flags) ? __print_flags(REC->gfp_flags, "|", {( unsigned long)(3), "BOTH"}, {1UL << 0, "ONE"}, {(( gfp_t)((1UL) << (2))), "FOUR"}, { 0, ((void *)0) } ) : "none""#,
        );
        assert_eq!(names.text(0), "none");
        assert_eq!(names.text(1), "ONE");
        assert_eq!(names.text(7), "BOTH|FOUR");
        assert_eq!(names.text(0x13), "BOTH|0x10");
    }
}
