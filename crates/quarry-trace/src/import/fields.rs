//! The `key=value` part of an event, of any kernel from 5.x to 6.18.
//!
//! A value runs to the next token that holds a `=`: `call_site=f+0x1/0x2 [module]` and cache names with
//! blanks come out whole. Keys that no event of ours uses are passed over. With its option `fields` ftrace prints
//! numbers twice, `bytes_req=0x3c (60)`, and flags without their names.

use memchr::{memchr, memmem, memrchr};

use crate::error::{LineProblem, clip};
use crate::event::{Kind, ORDER_MAX, RawEvent};

/// A field at fault and what is wrong with it.
pub(crate) type Fault = (&'static str, LineProblem);

/// Largest node number that a kernel can be built for.
pub(super) const NODE_MAX: i64 = 1023;
/// Most bytes of an object: a block of the largest order, with the largest pages.
const SIZE_MAX: u64 = object_bytes_max(PAGE_BYTES_MAX);
/// Bytes of the largest page of a kernel.
pub(crate) const PAGE_BYTES_MAX: u32 = 64 << 10;
/// Bytes of the smallest page of a kernel.
pub(crate) const PAGE_BYTES_MIN: u32 = 4 << 10;
/// More migratetypes than any kernel has.
pub(super) const MIGRATETYPE_MAX: i64 = 15;

/// Most bytes of an object with pages of this size: the page allocator of kernels has orders up to 10.
pub(crate) const fn object_bytes_max(page_bytes: u32) -> u64 {
    (page_bytes as u64) << 10
}

/// The fault of an allocation that no kernel makes: without a size, or larger than a block of pages.
pub(crate) fn size_fault(event: &RawEvent<'_>, page_bytes: u32) -> Option<Fault> {
    let is_alloc = !event.kind.is_page() && !event.kind.is_free();
    // kmalloc(0) gives the zero-size pointer, and no cache has objects without a size.
    const ZERO_SIZE_PTR: u64 = 16;
    if !is_alloc || event.address <= ZERO_SIZE_PTR {
        return None;
    }
    let max = object_bytes_max(page_bytes);
    let sizes = [
        ("bytes_alloc", event.bytes_alloc),
        ("bytes_req", event.bytes_req),
    ];
    sizes
        .into_iter()
        .find_map(|(field, bytes)| match u64::from(bytes) {
            0 => Some((field, LineProblem::Zero)),
            value if value > max => Some((field, LineProblem::TooLarge { value, max })),
            _ => None,
        })
}

/// Digits of a pointer of 64 bits, and of 32 bits.
pub(super) const POINTER_DIGITS: [usize; 2] = [16, 8];

/// Digits of the address of an object, as `%p` prints it; `None` for another form, as with `0x`.
fn pointer_digits(line: &[u8]) -> Option<usize> {
    let at = memmem::rfind(line, b" ptr=")? + b" ptr=".len();
    let word = line[at..].split(|byte| *byte == b' ').next()?;
    word.iter().all(u8::is_ascii_hexdigit).then_some(word.len())
}

/// True if the line of an object prints a low address with all digits of 64 bits: a hash, or low memory.
pub(super) fn is_padded_address(line: &[u8], event: &RawEvent<'_>) -> bool {
    let is_low = !event.kind.is_page() && event.address <= u64::from(u32::MAX);
    is_low && pointer_digits(line) == Some(POINTER_DIGITS[0])
}

/// Texts of an event's fields.
#[derive(Default)]
pub(super) struct Fields<'a> {
    call_site: Option<&'a [u8]>,
    ptr: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    bytes_req: Option<&'a [u8]>,
    bytes_alloc: Option<&'a [u8]>,
    gfp_flags: Option<&'a [u8]>,
    node: Option<&'a [u8]>,
    accounted: Option<&'a [u8]>,
    page: Option<&'a [u8]>,
    pfn: Option<&'a [u8]>,
    order: Option<&'a [u8]>,
    migratetype: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn split(text: &'a [u8]) -> Fields<'a> {
        let mut fields = Fields::default();
        let mut pending: Option<(&'a [u8], usize)> = None;
        let mut at = 0;
        while at < text.len() {
            let end = memchr(b' ', &text[at..]).map_or(text.len(), |n| at + n);
            if let Some(equal) = memchr(b'=', &text[at..end]) {
                if let Some((key, start)) = pending {
                    fields.set(key, &text[start..at]);
                }
                pending = Some((&text[at..at + equal], at + equal + 1));
            }
            at = end + 1;
        }
        if let Some((key, start)) = pending {
            fields.set(key, &text[start..]);
        }
        fields
    }

    /// Sets a field that events of ours have.
    pub(super) fn set(&mut self, key: &[u8], value: &'a [u8]) {
        let slot = match key {
            b"call_site" => &mut self.call_site,
            b"ptr" => &mut self.ptr,
            b"name" => {
                self.name = Some(value.trim_ascii());
                return;
            }
            b"bytes_req" => &mut self.bytes_req,
            b"bytes_alloc" => &mut self.bytes_alloc,
            b"gfp_flags" => &mut self.gfp_flags,
            b"node" => &mut self.node,
            b"accounted" => &mut self.accounted,
            b"page" => &mut self.page,
            b"pfn" => &mut self.pfn,
            b"order" => &mut self.order,
            b"migratetype" => &mut self.migratetype,
            _ => return,
        };
        *slot = Some(once(value.trim_ascii()));
    }
}

/// A value without the number that the option `fields` prints behind it: `0x3c (60)`, `f+0x1/0x2 (-7)`, `(1)`.
fn once(value: &[u8]) -> &[u8] {
    let Some((text, open)) = value
        .strip_suffix(b")")
        .and_then(|text| Some((text, memrchr(b'(', text)?)))
    else {
        return value;
    };
    let number = &text[open + 1..];
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return value;
    }
    match text[..open].trim_ascii_end() {
        b"" => number,
        rest => rest,
    }
}

/// Fills in `event`, whose kind is set, from the text behind the event's name.
pub(crate) fn parse<'a>(event: &mut RawEvent<'a>, text: &'a [u8]) -> Result<(), Fault> {
    fill(event, &Fields::split(text))
}

/// Fills in `event`, whose kind is set, from its fields.
pub(super) fn fill<'a>(event: &mut RawEvent<'a>, fields: &Fields<'a>) -> Result<(), Fault> {
    if event.kind.is_page() {
        return parse_page(event, fields);
    }
    event.call_site = fields.call_site.filter(|site| !site.is_empty());
    event.address = address("ptr", fields.ptr)?;
    event.cache = fields.name.filter(|name| !name.is_empty());
    if event.kind.is_free() {
        return Ok(());
    }
    event.bytes_req = size("bytes_req", fields.bytes_req)?;
    event.bytes_alloc = size("bytes_alloc", fields.bytes_alloc)?;
    if let Some(fault) = size_fault(event, PAGE_BYTES_MAX) {
        return Err(fault);
    }
    if event.bytes_req > event.bytes_alloc {
        let (value, max) = (u64::from(event.bytes_req), u64::from(event.bytes_alloc));
        return Err(("bytes_req", LineProblem::TooLarge { value, max }));
    }
    event.gfp_flags = Some(gfp(fields.gfp_flags)?);
    event.node = small("node", fields.node, NODE_MAX)?;
    event.accounted = matches!(fields.accounted, Some(b"true" | b"1" | b"Y"));
    if event.kind.is_kmalloc() {
        event.cache = None;
    }
    Ok(())
}

fn parse_page<'a>(event: &mut RawEvent<'a>, fields: &Fields<'a>) -> Result<(), Fault> {
    event.address = pfn(fields)?;
    let order = number("order", fields.order)?;
    if order > u64::from(ORDER_MAX) {
        return Err((
            "order",
            LineProblem::TooLarge {
                value: order,
                max: u64::from(ORDER_MAX),
            },
        ));
    }
    event.order = order as u8;
    if event.kind == Kind::MmPageAlloc {
        event.migratetype = small("migratetype", fields.migratetype, MIGRATETYPE_MAX)? as i8;
        event.gfp_flags = Some(gfp(fields.gfp_flags)?);
    }
    Ok(())
}

/// The page frame number, [`u64::MAX`] if nothing was allocated.
///
/// Kernels print it in decimal or with `0x`, and a failed allocation as -1 or as 0 with a null page.
fn pfn(fields: &Fields<'_>) -> Result<u64, Fault> {
    let text = fields.pfn.ok_or(("pfn", LineProblem::Missing))?;
    if text == b"-1" {
        return Ok(u64::MAX);
    }
    let value = number("pfn", Some(text))?;
    let null_page = fields
        .page
        .is_some_and(|page| parse_address(page) == Some(0));
    if value == 0 && null_page {
        return Ok(u64::MAX);
    }
    // Physical addresses have at most 52 bits.
    const PFN_MAX: u64 = 1 << 52;
    if value != u64::MAX && value > PFN_MAX {
        return Err((
            "pfn",
            LineProblem::TooLarge {
                value,
                max: PFN_MAX,
            },
        ));
    }
    Ok(value)
}

fn gfp(text: Option<&[u8]>) -> Result<&[u8], Fault> {
    text.filter(|text| !text.is_empty())
        .ok_or(("gfp_flags", LineProblem::Missing))
}

fn size(field: &'static str, text: Option<&[u8]>) -> Result<u32, Fault> {
    let value = number(field, text)?;
    if value > SIZE_MAX {
        return Err((
            field,
            LineProblem::TooLarge {
                value,
                max: SIZE_MAX,
            },
        ));
    }
    Ok(value as u32)
}

/// A small number; -1 (also as an unsigned 32-bit number) or an absent field means none.
fn small(field: &'static str, text: Option<&[u8]>, max: i64) -> Result<i16, Fault> {
    match text {
        None | Some(b"-1" | b"4294967295" | b"0xffffffff") => Ok(-1),
        Some(text) => {
            let value = number(field, Some(text))?;
            if value > max as u64 {
                return Err((
                    field,
                    LineProblem::TooLarge {
                        value,
                        max: max as u64,
                    },
                ));
            }
            Ok(value as i16)
        }
    }
}

fn number(field: &'static str, text: Option<&[u8]>) -> Result<u64, Fault> {
    let text = text.ok_or((field, LineProblem::Missing))?;
    parse_number(text).ok_or_else(|| (field, LineProblem::NotNumber(clip(text))))
}

fn address(field: &'static str, text: Option<&[u8]>) -> Result<u64, Fault> {
    let text = text.ok_or((field, LineProblem::Missing))?;
    parse_address(text).ok_or_else(|| match text {
        b"(____ptrval____)" | b"(ptrval)" => (field, LineProblem::EarlyPointer(clip(text))),
        _ => (field, LineProblem::NotAddress(clip(text))),
    })
}

/// Decimal, or hexadecimal with `0x`.
pub(crate) fn parse_number(text: &[u8]) -> Option<u64> {
    if let Some(hex) = text.strip_prefix(b"0x") {
        return parse_hex(hex);
    }
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut value = 0_u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Hexadecimal with or without `0x`, or one of the ways in which a null pointer is printed.
fn parse_address(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    match digits {
        b"(nil)" | b"(null)" | b"NULL" => Some(0),
        _ => parse_hex(digits),
    }
}

fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let mut value = 0_u64;
    for byte in digits {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}
