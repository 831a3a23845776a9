//! Memory whose bytes have values, whatever a former owner left there.
//!
//! The system fills a machine's memory with zeros when it is mapped and after each trim, so no byte begins without a
//! value. By the rules of the language a former owner can leave such bytes all the same: by a copy of
//! `MaybeUninit::uninit()`, or of a value with padding. A compiler may take them for any value, and for another one at
//! each read. So a `&[u8]` of a reused page needs an argument.
//!
//! The functions here are that argument, and no instruction. To the compiler, a block of assembly that has the memory's
//! address may have stored a value to each byte that belongs to its caller. The values that the processor finds
//! there are such values. From then on each byte has one, which does not change by itself.
//!
//! Interpreters do without assembly, and so do other processors here: the bytes become 0.

use core::ptr::NonNull;

use quarry_core::page::Pfn;

/// Gives every byte of a block a value, which is the one that the memory has.
///
/// # Safety
///
/// The block is mapped, and the caller's alone.
#[inline(always)]
pub unsafe fn give_values(block: NonNull<u8>, bytes: usize) {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        // SAFETY: nothing is executed. What may be assumed of it, stores to a block that is the caller's alone, is no
        // more than its caller could do.
        unsafe {
            core::arch::asm!("/* {} */", in(reg) block.as_ptr(), options(nostack, preserves_flags));
        }
        let _ = bytes;
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    // SAFETY: the block is mapped and the caller's alone.
    unsafe {
        block.write_bytes(0, bytes);
    }
}

/// [`give_values`] for blocks of pages of the memory that begins at `memory`, all at once.
///
/// # Safety
///
/// As for [`give_values`], for each of the blocks, which begin `pfn << page_shift` bytes from `memory` on.
#[inline(always)]
pub unsafe fn give_values_to_pages(
    memory: NonNull<u8>,
    blocks: &[Pfn],
    page_shift: u32,
    bytes: usize,
) {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        // SAFETY: as in `give_values`, of all blocks, which a loop could find in the list.
        unsafe {
            core::arch::asm!(
                "/* {} {} */",
                in(reg) memory.as_ptr(),
                in(reg) blocks.as_ptr(),
                options(nostack, preserves_flags)
            );
        }
        let _ = (page_shift, bytes);
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    for pfn in blocks {
        // SAFETY: by the caller's contract the block is part of the memory.
        let block = unsafe { memory.byte_add((pfn.0 as usize) << page_shift) };
        // SAFETY: the caller's contract covers each block of the list.
        unsafe { give_values(block, bytes) };
    }
}

#[cfg(test)]
mod tests {
    use core::mem::MaybeUninit;

    use super::*;

    /// Miri, which knows the bytes without a value, refuses the reads if they are not given one first.
    #[test]
    fn bytes_that_an_owner_left_without_a_value_can_be_read() {
        let mut memory = [[7_u8; 64]; 4];
        let start = NonNull::from(&mut memory).cast::<u8>();
        for row in [1, 3] {
            // SAFETY: rows of `memory`, which nothing else refers to.
            let block = unsafe { start.byte_add(row * 64) };
            // SAFETY: the block is a row of `memory` and of this alignment.
            unsafe { block.cast().write(MaybeUninit::<[u8; 64]>::uninit()) };
        }
        // SAFETY: the second row, which is this test's alone.
        let second = unsafe { start.byte_add(64) };
        // SAFETY: the row is mapped and only this test uses it.
        unsafe { give_values(second, 64) };
        // SAFETY: the fourth row, 3 << 6 bytes from the start, is this test's alone.
        unsafe { give_values_to_pages(start, &[Pfn(3)], 6, 64) };
        // SAFETY: all four rows are mapped, and their bytes have values: two rows since they were made, two again.
        let memory = unsafe { start.cast::<[[u8; 64]; 4]>().as_ref() };
        assert_eq!((memory[0], memory[2]), ([7; 64], [7; 64]));
        assert_eq!(memory[1], memory[1].map(core::hint::black_box));
        assert_eq!(memory[3], memory[3].map(core::hint::black_box));
    }
}
