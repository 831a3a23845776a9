// The try-lock of src/rseq/aarch64.rs with registers filled in, to be assembled and run alone.
// tests/listing.rs keeps the two equal.
//
//   in   x0 distance of `struct rseq` from tpidr_el0, w1 number of CPUs, x2 CPU 0's word
//   out  x0 offset of the running CPU's word, or -1
    .text
    .globl quarry_try_lock
    .type quarry_try_lock, %function
quarry_try_lock:
// begin
    .pushsection .data.rel.ro.quarry_rseq, "aw", @progbits
    .balign 32
2:
    .long 0, 0
    .quad 4f, 5f - 4f, 7f
    .popsection
3:
    mrs x4, tpidr_el0
    add x4, x4, x0
    adrp x3, 2b
    add x3, x3, :lo12:2b
    str x3, [x4, #8]
4:
    ldr w3, [x4, #4]
    cmp w3, w1
    b.hs 6f
    lsl x3, x3, #22
    add x5, x2, x3
    ldar w6, [x5]
    cbnz w6, 6f
    mov w6, #1
    str w6, [x5]
5:
    b 9f
6:
    mov x3, #-1
9:
    .pushsection .text.unlikely.quarry_rseq, "ax", @progbits
    .balign 4
    .inst 0xd428bc00
7:
    adrp x16, :got:quarry_aborts
    ldr x16, [x16, :got_lo12:quarry_aborts]
8:
    ldxr x17, [x16]
    add x17, x17, #1
    stxr w6, x17, [x16]
    cbnz w6, 8b
    b 3b
    .popsection
// end
    mov x0, x3
    ret
    .size quarry_try_lock, . - quarry_try_lock

    .bss
    .globl quarry_aborts
    .balign 8
quarry_aborts:
    .skip 8
